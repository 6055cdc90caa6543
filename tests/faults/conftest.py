"""Two forms of one suite: short inside `make test`, long by `make test-faults` (SELFCAL_FAULTS=long)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import selfcal
import tallies
from small import LONG, SETTINGS

FEWEST_KILLS = 1000  # in the long form, over all commands

usual = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("short", max_examples=40, derandomize=True, database=None, **usual)
settings.register_profile("long", max_examples=2000, print_blob=True, **usual)
settings.load_profile("long" if LONG else "short")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run of images of two classes, hardly trained."""
    rng, shelf = np.random.default_rng(0), tmp_path_factory.mktemp("images")
    np.savez(shelf / "d.npz", x=rng.integers(0, 255, (40, 1, 8, 8), dtype=np.uint8), y=np.arange(40) % 2)
    tiny = {key: value for key, value in SETTINGS.items() if not key.startswith("run.")}
    return selfcal.train(shelf / "d.npz", "cg", "4/class", shelf / "run", steps=2, settings=tiny)


@pytest.fixture
def tally(request):
    """`tally["csv"] += 1` for every example that came through; too few of them are an error in the long form."""
    counts = Counter()
    yield counts
    request.node.user_properties += [("fuzzed", (kind, count)) for kind, count in counts.items()]
    assert min(counts.values(), default=0) >= tallies.FEWEST, counts


@pytest.fixture
def names_tally(request):
    """(medium, unescaped or not) of every hostile name."""
    counts, raw = Counter(), Counter()
    yield counts, raw
    request.node.user_properties += [("names", (medium, count)) for medium, count in counts.items()]
    request.node.user_properties += [("unescaped", (medium, count)) for medium, count in raw.items()]
    assert min(counts.values(), default=0) >= tallies.FEWEST_NAMES, counts


def faults(reporter):
    """What the tests recorded: (what, changes to the disk, fates met, what went wrong), whichever process ran them."""
    reports = [r for kind in ("passed", "failed") for r in reporter.stats.get(kind, []) if r.when == "call"]
    return [value for r in reports for key, value in r.user_properties if key == "faults"]


def pytest_terminal_summary(terminalreporter):
    tallies.summarise(terminalreporter)
    rows = sorted(faults(terminalreporter))
    if not rows:
        return
    write, met, wrong = terminalreporter.write_line, Counter(), Counter()
    terminalreporter.section("faults")
    for name, moments, fates, problems in rows:
        met.update(fates)
        wrong.update(problems)
        write(f"{name:26s} {moments:5d} changes  " + "  ".join(f"{fate} {count}" for fate, count in fates.items()))
    write("in all: " + ", ".join(f"{count} {fate}" for fate, count in met.most_common()))
    write(
        f"earlier outputs lost: {wrong['lost']}; half-written and taken for whole: {wrong['half']}; "
        f"bits different: {wrong['bits']}; anything else wrong: {wrong['other']}"
    )


def pytest_sessionfinish(session):
    """The bar itself, when the whole suite was run."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    everything = not session.config.option.keyword and any(
        a.rstrip("/").endswith("faults") for a in session.config.args
    )
    if LONG and everything and reporter is not None and not hasattr(session.config, "workerinput"):
        kills = sum(fates.get("SIGKILL", 0) for _, _, fates, _ in faults(reporter))
        if kills < FEWEST_KILLS and not session.config.option.collectonly:
            reporter.write_line(f"only {kills} kills, at least {FEWEST_KILLS} are promised", red=True)
            session.exitstatus = 1
