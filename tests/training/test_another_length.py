"""A run that is not finished gets another length, shorter or longer, by --steps or --minutes."""

from __future__ import annotations

import json
import re

import pytest

import selfcal
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.training import checkpoints
from selfcal.training import pace as pacing

SMALL = {"run.save_every": 10, "run.log_every": 5, "score.width": 8, "classifier.width": 8}
CONSTANT = SMALL | {"score.decay": 0, "classifier.decay": 0}
ROWS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def brief(monkeypatch):
    """Planned as if every step took a second: few steps, and no waiting."""
    monkeypatch.setattr(pacing, "of_one_step", lambda *a: 1.0)


def trained(out, steps=40, settings=SMALL, method="cg-sc-all", **more):
    return selfcal.train("moons", method, 0.03, out, steps=steps, settings=settings, **more)


def stopped(out, saves, **more):
    """A run whose process ends after so many checkpoints."""
    real, seen = checkpoints.save, []

    def save(*arguments):
        path = real(*arguments)
        seen.append(path)
        if len(seen) == saves:
            raise KeyboardInterrupt
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "save", save)
        with pytest.raises(KeyboardInterrupt):
            trained(out, **more)
    return out


def typed(out, *words):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "moons", "--labels", "0.03", "--out", str(out), *ROWS, *words])
    return stop.value.code or 0


def hashes(run):
    return run.describe()["weights_sha256"]


def test_fewer_steps(tmp_path, capsys):
    out = stopped(tmp_path / "r", 2)
    run = trained(out, 30)
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "score: from step 20 on to 30 instead of 40; its learning rate falls faster from here, so it is not what a "
        "run of 30 steps from the start would have become"
    ) in said
    assert "classifier: 30 steps instead of 40" in said
    assert run.describe()["step"] == {"score": 30, "classifier": 30}
    assert run.describe()["finished"]
    assert run.config["replanned"] == [{"steps": {"score": 40, "classifier": 40}, "reached": {"score": 20}}]
    rates = [line["lr"] for line in run.directory.journal.lines() if line["network"] == "score"]
    assert len(rates) == 7
    assert rates[4] - rates[5] > 1.2 * (rates[2] - rates[3]), "faster"
    stamps = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    trained(out, 30)
    assert stamps == {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}, "the same command rests"


@pytest.mark.parametrize("steps", [30, 60])
def test_with_a_constant_learning_rate_it_is_that_run_to_the_bit(tmp_path, capsys, steps):
    run = trained(stopped(tmp_path / "r", 2, settings=CONSTANT), steps, CONSTANT)
    assert "instead of 40, to the bit as if it had been planned so" in " ".join(capsys.readouterr().err.split())
    whole = trained(tmp_path / "whole", steps, CONSTANT)
    assert hashes(run) == hashes(whole)
    assert (run.path / "log.jsonl").read_text() == (whole.path / "log.jsonl").read_text()


def test_killed_again_it_ends_with_the_same_bits(tmp_path):
    whole = trained(stopped(tmp_path / "whole", 2), 30)
    out = stopped(stopped(tmp_path / "r", 2), 1, steps=30)  # the last step of the score model
    assert json.loads((out / "config.json").read_text())["settings"]["score"]["steps"] == 30
    assert hashes(trained(out, 30)) == hashes(whole)


def test_a_network_that_is_beyond_ends_where_it_is(tmp_path, capsys):
    run = trained(stopped(tmp_path / "r", 3), 15)
    said = " ".join(capsys.readouterr().err.split())
    assert "score: ends at step 30, where it is, instead of 40; its learning rate has not fallen to 0, so" in said
    assert run.describe()["step"] == {"score": 30, "classifier": 15}
    assert run.describe()["finished"]
    assert len(run.sample(count=4, steps=2)) == 4


def test_a_finished_network_keeps_its_steps_unless_more_are_asked_for(tmp_path, capsys):
    out = stopped(tmp_path / "r", 5)  # at step 10 of the classifier
    before = hashes(selfcal.load(out))["score"]
    run = trained(out, 20)
    assert "score: keeps its 40 steps, which it has taken already" in capsys.readouterr().err
    assert run.describe()["step"] == {"score": 40, "classifier": 20}
    assert hashes(run)["score"] == before
    out = stopped(tmp_path / "more", 5)
    run = trained(out, 50)
    said = " ".join(capsys.readouterr().err.split())
    assert "score: from step 40 on to 50; its learning rate had fallen to 0" in said
    assert "classifier: from step 10 on to 50 instead of 40; its learning rate falls more slowly from here" in said
    assert run.describe()["step"] == {"score": 50, "classifier": 50}


def test_stages_of_one_role_share_what_was_taken(tmp_path):
    """The second classifier is not shorter than the first one, which has the same settings."""
    out = stopped(tmp_path / "r", 9, method="cg-sc-pl")  # at step 10 of the second
    run = trained(out, 20, method="cg-sc-pl")
    assert run.describe()["step"] == {"score": 40, "classifier": 40, "classifier-round-1": 40}
    assert run.describe()["finished"]


def test_what_is_still_refused(tmp_path):
    out = stopped(tmp_path / "r", 2)
    config = (out / "config.json").read_bytes()
    with pytest.raises(SelfcalError, match=r"differs in settings\.classifier\.steps, settings\.score\.steps\. Choose"):
        trained(out, None)  # other steps, but only by the preset
    with pytest.raises(SelfcalError, match=r"differs in .*settings\.score\.width"):
        trained(out, 30, SMALL | {"score.width": 16})
    assert (out / "config.json").read_bytes() == config


def test_only_networks_that_there_are_are_named(tmp_path):
    trained(tmp_path / "r", 10, method="cg")
    with pytest.raises(SelfcalError) as refused:
        trained(tmp_path / "r", 5, method="cg")
    assert "differs in settings.classifier.steps, settings.score.steps." in str(refused.value)
    with pytest.raises(SelfcalError, match=r"differs in .*method"):
        trained(tmp_path / "r", 10, method="cfg-labeled")


# --- minutes ----------------------------------------------------------------------------------------


def test_minutes_are_those_in_all(tmp_path, brief, capsys):
    """20 steps are 20 seconds here: of 60, 40 are left, which the networks share such that both get equally many."""
    out = stopped(tmp_path / "r", 2, steps=None, minutes=2.0)
    planned = selfcal.load(out).settings.score.steps
    assert planned == pytest.approx(0.96 * 60, abs=1)
    run = trained(out, None, minutes=1.0, until="score")
    assert run.settings.score.steps == run.settings.classifier.steps == pytest.approx((20 + 0.96 * 40) / 2, abs=1)
    said = " ".join(capsys.readouterr().err.split())
    assert f"score: from step 20 on to {run.settings.score.steps} instead of {planned}" in said
    assert run.config["asked"]["minutes"] == run.config["pace"]["minutes"] == 1.0
    assert run.config["replanned"] == [{"steps": {"score": planned, "classifier": planned}, "reached": {"score": 20}}]


def test_the_same_minutes_go_on_as_planned(tmp_path, brief):
    out = stopped(tmp_path / "r", 2, steps=None, minutes=2.0)
    config = (out / "config.json").read_bytes()
    run = trained(out, None, minutes=2.0)
    assert (out / "config.json").read_bytes() == config
    by_hand = trained(tmp_path / "same", run.settings.score.steps)
    assert hashes(run) == hashes(by_hand)


def test_no_time_left_names_the_least(tmp_path, brief, capsys):
    out = stopped(tmp_path / "r", 4, steps=None, minutes=2.0)  # 40 steps, or seconds
    config = (out / "config.json").read_bytes()
    assert typed(out, "--minutes", "0.5") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "has had about 0.667 minutes already, as its steps take at this machine's present pace" in said
    assert (out / "config.json").read_bytes() == config
    (least,) = re.findall(r"so give ([0-9.]+) at least", said)
    assert float(least) == pytest.approx((40 + 40 / 0.96) / 60, rel=0.15)
    assert typed(out, "--minutes", least) == 0
    assert selfcal.load(out).settings.score.steps >= 40


def test_as_typed(tmp_path, brief, capsys):
    """What the run has, in fewer steps: it is finished, and tells how it came about."""
    out = stopped(tmp_path / "r", 4, steps=None, minutes=2.0)
    assert typed(out, "--steps", "25") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "score: ends at step 40, where it is, instead of 57" in said
    with pytest.raises(SystemExit):
        cli.main(["show", str(out)])
    shown = " ".join(capsys.readouterr().out.split())
    assert "replanned from score 57, classifier 57 steps at score 40" in shown
    assert "classifier step 25 of 25" in shown
