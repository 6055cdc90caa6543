"""Numbers that may stand in one table, and those that may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfcal.core.errors import SelfcalError

ENOUGH = 2048  # samples below which a Fréchet distance carries a bias worth a warning
LEAST = 20  # real images of known class, in every class, below which no per-class metric is reported
MUST_AGREE = {
    "samples": "numbers of samples (the bias of FID falls with their number)",
    "features_sha256": "feature extractors",
    "reference_sha256": "reference images",
    "k": "numbers of neighbours",
}


def check_comparable(results: Sequence[Mapping[str, Any]]) -> None:
    """Refuse results that were not measured alike, naming how they differ."""
    for key, words in MUST_AGREE.items():
        values = {r[key] for r in results}
        if len(values) > 1:
            names = ", ".join(sorted(str(f)[:12] for f in values))
            raise SelfcalError(f"these results cannot be compared: they have different {words}: {names}")
