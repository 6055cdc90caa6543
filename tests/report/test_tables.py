"""The table on the terminal, and the words below it."""

from __future__ import annotations

import io

import pytest

from selfcal.core.console import PlainConsole
from selfcal.report.tables import print_results, verdict

RESULT = {
    "method": "cg-sc-all", "scale": 6.0, "chosen": True, "samples": 50, "sampler": "dpm++2m-sde", "evaluations": 20,
    "k": 5, "features": "efficientnet-lite0", "features_sha256": "0" * 64, "distance": "FD-EffNetLite0",
    "reference": "train", "reference_sha256": "1" * 64, "reference_per_class": 8, "biased": True, "intra_fid": None,
    "fid": 2453.0, "agreement": 0.18, "accuracy": None,
    "intervals": {"intra_fid": None, "fid": [2435.2, 2470.8], "agreement": [0.135, 0.225]},
}  # fmt: skip


def printed(result, classes):
    console = PlainConsole(file=io.StringIO(), width=200)
    print_results(console, [result], "runs/p", classes=classes)
    return " ".join(console.file.getvalue().split())


def test_every_interval_is_shown_and_chance_is_named():
    said = printed(RESULT, 5)
    assert "95 % intervals at λ = 6: FD 2435.2 to 2470.8" in said
    assert "0.135 to 0.225" in said
    assert "±" not in said, "a sign that is nowhere needs no explanation"
    assert "intra-metrics need 20 images of known class in each, and one has 8" in said
    assert "recognises no more than chance would: 0.18, where guessing gives 0.20" in said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agreement": 0.6, "intervals": {"agreement": [0.5, 0.7]}}, "In 60% of the samples a classifier of the given"),
        ({"accuracy": 0.9, "intervals": None}, "In 90% of the samples the judge sees the class"),
        ({"accuracy": 0.2, "intervals": None}, "the judge recognises no more than chance"),
        ({"agreement": None}, ""),
    ],
)
def test_a_verdict_in_words(changes, words):
    assert words in verdict(RESULT | changes, 5)
    assert bool(words) == bool(verdict(RESULT | changes, 5))
