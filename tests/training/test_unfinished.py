"""A run that was stopped is used as it is, and everything made of it says so."""

from __future__ import annotations

import json
import shutil

import pytest

import selfcal
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.training import checkpoints
from selfcal.training.lock import sole_owner

SMALL = {"run.save_every": 5, "score.width": 8, "classifier.width": 8, "run.preview_every": 0}


def typed(*words):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return stop.value.code or 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "r"
    return selfcal.train("digits", "cg-sc-all", "4/class", out, steps=10, settings=SMALL)


@pytest.fixture
def stopped(finished, tmp_path):
    """As after a Ctrl-C at step 5 of the guide."""
    shutil.copytree(finished.path, tmp_path / "r")
    checkpoints.remove(tmp_path / "r" / "checkpoints" / "classifier" / "step-00000010")
    return tmp_path / "r"


@pytest.fixture
def without_guide(stopped):
    shutil.rmtree(stopped / "checkpoints" / "classifier")
    return stopped


def test_samples_of_its_latest_checkpoint(stopped, finished, capsys, tmp_path):
    run = selfcal.load(stopped)
    assert run.unfinished == {"classifier": (5, 10)}
    samples = run.sample(count=4, steps=3)
    assert samples.made["unfinished"] == {"classifier": (5, 10)}
    assert "unfinished" not in finished.sample(count=4, steps=3).made
    assert typed("sample", stopped, "--count", "4", "--steps", "2", "--out", tmp_path / "s") == 0
    assert "is unfinished: the classifier network is at step 5 of 10" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert "unfinished" in json.dumps(manifest)
    assert typed("sample", finished.path, "--count", "2", "--steps", "2", "--out", tmp_path / "f") == 0
    assert "unfinished" not in capsys.readouterr().out


def test_its_evaluation_is_marked(stopped, capsys):
    options = ("--count", "40", "--steps", "2", "--features", "identity", "--no-intervals")
    assert typed("evaluate", stopped, *options) == 0
    assert "is unfinished: the classifier network is at step 5 of 10" in capsys.readouterr().out
    metrics = json.loads((stopped / "metrics.json").read_text())
    assert metrics["unfinished"] == {"classifier": [5, 10]}
    assert all(row["unfinished"] == {"classifier": [5, 10]} for row in metrics["results"])
    assert typed("show", stopped) == 0


def test_without_its_guide_it_samples_unguided(without_guide, capsys):
    run = selfcal.load(without_guide)
    with pytest.raises(SelfcalError, match=r"was stopped, and its classifier .* again to go on; .* unconditional"):
        run.sample(count=2, steps=2)
    with pytest.raises(SelfcalError, match="its classifier network has no checkpoint yet"):
        run.evaluate()
    with pytest.raises(SelfcalError, match="unknown class '33'"):  # a wrong name is told before
        run.sample(classes="33", count=2, steps=2)
    samples = run.sample(classes="3", count=2, steps=2, guide="unconditional")
    assert len(samples) == 2
    assert samples.classes == ("any class",), "nobody guided them"
    assert typed("sample", without_guide, "--count", "2", "--classes", "3") == 2
    assert "λ" not in capsys.readouterr().out, "what cannot be drawn has no λ"


def test_while_it_is_being_trained_nobody_is_told_to_train_it(without_guide):
    run = selfcal.load(without_guide)
    with sole_owner(without_guide), pytest.raises(SelfcalError, match=r"is being trained, .* wait for it"):
        run.sample(count=2, steps=2)


def test_it_is_neither_exported_nor_lent(stopped, tmp_path):
    from selfcal.interop.export import export

    with pytest.raises(SelfcalError, match=r"is not finished .* at step 5 of 10"):
        export(selfcal.load(stopped), tmp_path / "pipeline")
    checkpoints.remove(stopped / "checkpoints" / "score" / "step-00000010")
    with pytest.raises(SelfcalError, match="its score model is at step 5 of 10"):
        selfcal.train("digits", "cg", "4/class", tmp_path / "b", steps=10, settings=SMALL, score=stopped)


def test_and_it_goes_on_exactly(stopped, finished):
    again = selfcal.train("digits", "cg-sc-all", "4/class", stopped, steps=10, settings=SMALL)
    assert not again.unfinished
    assert again.describe()["weights_sha256"] == finished.describe()["weights_sha256"]
