"""A finished run made longer: to the bit the longer run where the learning rate is constant, in words where not."""

from __future__ import annotations

import json
import shutil

import pytest

import selfcal
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.core.settings import resolve
from selfcal.methods.table import METHODS
from selfcal.training import checkpoints
from selfcal.training.longer import builds_on_others

SMALL = {"run.save_every": 10, "run.log_every": 5, "score.width": 8, "classifier.width": 8}
CONSTANT = SMALL | {"score.decay": 0, "classifier.decay": 0}
BITS = ("weights.safetensors", "ema.safetensors", "optimizer.safetensors")


def trained(out, steps=20, settings=CONSTANT, method="cg-sc-all", **more):
    return selfcal.train("moons", method, 0.03, out, steps=steps, settings=settings, **more)


def bits(run, steps):
    """Of every network's last checkpoint."""
    folders = [checkpoints.path_of(run.directory.checkpoints(s.name), steps) for s in run.stages]
    return [(folder / name).read_bytes() for folder in folders for name in BITS]


def test_with_a_constant_learning_rate_it_is_the_longer_run_to_the_bit(tmp_path, capsys):
    whole = trained(tmp_path / "whole", 40)
    trained(tmp_path / "r", 20)
    longer = trained(tmp_path / "r", 40)
    assert bits(longer, 40) == bits(whole, 40)
    assert (longer.path / "log.jsonl").read_text() == (whole.path / "log.jsonl").read_text()
    assert capsys.readouterr().err.count("to the bit as if it had been so long") == 2
    assert longer.config["lengthened"] == [{"score": 20, "classifier": 20}]
    assert longer.describe()["finished"]
    stamps = {p: p.stat().st_mtime_ns for p in longer.path.rglob("*") if p.is_file()}
    trained(tmp_path / "r", 40)
    assert stamps == {p: p.stat().st_mtime_ns for p in longer.path.rglob("*") if p.is_file()}, "the same command rests"


def test_twice_and_interrupted(tmp_path, monkeypatch):
    whole = trained(tmp_path / "whole", 40)
    trained(tmp_path / "r", 13)  # off the schedule of checkpoints
    real_save, saved = checkpoints.save, []

    def save_then_die(*arguments, **keywords):
        path = real_save(*arguments, **keywords)
        saved.append(path)
        if len(saved) == 2:
            raise KeyboardInterrupt
        return path

    monkeypatch.setattr(checkpoints, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "r", 40)
    monkeypatch.setattr(checkpoints, "save", real_save)
    assert bits(trained(tmp_path / "r", 40), 40) == bits(whole, 40)


def test_a_falling_learning_rate_is_said_in_words(tmp_path, capsys):
    trained(tmp_path / "r", 20, SMALL)
    longer = trained(tmp_path / "r", 40, SMALL)
    said = " ".join(capsys.readouterr().err.split())
    assert "score: from step 20 on to 40; its learning rate had fallen to 0 and rises to" in said
    assert "not what a run of 40 steps from the start would have become" in said
    rates = [line["lr"] for line in longer.directory.journal.lines() if line["network"] == "score"]
    assert rates[-4] > rates[-5], "it rises"
    again = shutil.copytree(longer.path, tmp_path / "killed")
    shutil.rmtree(again / "checkpoints" / "classifier" / "step-00000040")
    assert bits(trained(again, 40, SMALL), 40) == bits(longer, 40), "and goes on exactly"


def test_one_network_alone(tmp_path):
    run = trained(tmp_path / "r", 20)
    before = bits(run, 20)[:3]
    longer = trained(tmp_path / "r", 20, CONSTANT | {"classifier.steps": 40})
    assert bits_of(longer, "score", 20) == before
    assert longer.directory.step_of(longer.stages[1]) == 40


def bits_of(run, network, step):
    return [(checkpoints.path_of(run.directory.checkpoints(network), step) / name).read_bytes() for name in BITS]


def test_what_is_refused(tmp_path):
    trained(tmp_path / "r", 20)
    config = (tmp_path / "r" / "config.json").read_bytes()
    with pytest.raises(SelfcalError, match=r"differs in settings\.classifier\.steps"):
        trained(tmp_path / "r", 10)
    with pytest.raises(SelfcalError, match=r"differs in .*settings\.score\.width"):
        trained(tmp_path / "r", 40, CONSTANT | {"score.width": 16})
    with pytest.raises(SelfcalError, match=r"differs in .*seed"):
        trained(tmp_path / "r", 40, seed=1)
    with pytest.raises(SelfcalError, match=r"differs in settings\.classifier\.steps"):
        trained(tmp_path / "r", None)  # more steps, but only by the preset
    assert (tmp_path / "r" / "config.json").read_bytes() == config


def test_a_score_model_from_elsewhere_is_not_trained_further(tmp_path):
    donor = trained(tmp_path / "a", 20)
    steps = CONSTANT | {"classifier.steps": 20}
    trained(tmp_path / "b", None, steps, score=donor.path)
    longer = trained(tmp_path / "b", None, steps | {"classifier.steps": 40}, score=donor.path)
    assert longer.describe()["step"]["score"] == 20
    assert longer.describe()["weights_sha256"]["score"] == donor.describe()["weights_sha256"]["score"]
    with pytest.raises(SelfcalError, match=r"another score\.steps"):
        trained(tmp_path / "b", 60, score=donor.path)


@pytest.mark.parametrize("method", METHODS)
def test_networks_that_build_on_others_are_known(method):
    """Those whose terms read the score model, whose labels a classifier gave, or that train on from one."""
    settings = resolve("moons")
    found = {stage.name for stage in METHODS[method].stages(settings) if builds_on_others(stage, settings)}
    expected = {"cg-dlsm": {"classifier"}, "cg-sc-pl": {"classifier-round-1"}, "dpt": {"conditional"}}
    expected["dpt-online"] = expected["dpt"]
    assert found == expected.get(method, set())


def test_as_typed(tmp_path, capsys):
    words = ["train", "moons", "--labels", "0.03", "--out", str(tmp_path / "r"), "--set", "score.decay=0"]
    for steps in ("20", "30"):
        with pytest.raises(SystemExit) as stop:
            cli.main([*words, "--steps", steps])
        assert not stop.value.code
    assert "from step 20 on to 30, to the bit as if" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(SystemExit):
        cli.main(["show", str(tmp_path / "r"), "--json"])
    about = json.loads(capsys.readouterr().out)
    assert about["lengthened"] == [{"score": 20, "classifier": 20}]
