"""Two forms of one suite: short inside `make test`, long by `make test-faults` (SELFCAL_FAULTS=long)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from small import LONG

usual = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("short", max_examples=40, derandomize=True, database=None, **usual)
settings.register_profile("long", max_examples=2000, print_blob=True, **usual)
settings.load_profile("long" if LONG else "short")
