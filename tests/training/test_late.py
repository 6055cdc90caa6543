"""A machine that becomes slower while a network is under way: the plan follows at checkpoints, the bits the plan."""

from __future__ import annotations

import pytest

import selfcal
from selfcal.training import checkpoints
from selfcal.training import fit as fitting
from selfcal.training import pace as pacing
from selfcal.training.loop import Learner

SMALL = {"run.save_every": 20, "run.log_every": 10, "score.width": 8, "classifier.width": 8}
SMALL |= {"score.batch": 16, "classifier.batch": 16}
STEP = 0.1  # seconds, as measured


class Machine:
    """A clock that steps turn: `slower` times as long as measured, once so many seconds have passed."""

    def __init__(self, monkeypatch, slower, after=0.0):
        self.now, self.slower, self.after = 1000.0, slower, after
        real = Learner.advance

        def advance(learner, *arguments):
            self.now += STEP * (self.slower if self.now - 1000 >= self.after else 1.0)
            return real(learner, *arguments)

        monkeypatch.setattr(Learner, "advance", advance)
        monkeypatch.setattr(pacing, "of_one_step", lambda *a: STEP)
        monkeypatch.setattr(pacing.time, "monotonic", lambda: self.now)


def trained(out, minutes=0.5, **more):
    return selfcal.train("moons", "cg-sc-all", 0.03, out, minutes=minutes, settings=SMALL, **more)


def test_three_times_slower_after_the_beginning(tmp_path, monkeypatch, capsys):
    machine = Machine(monkeypatch, slower=3.0, after=2.0)
    run = trained(tmp_path / "r")
    assert machine.now - 1000 == pytest.approx(30, rel=0.15)
    assert run.describe()["finished"]
    first = run.config["replanned"][0]
    assert first["steps"] == pytest.approx({"score": 143, "classifier": 143}, abs=2)
    assert first["reached"] == {"score": 40}
    score, classifier = run.settings.score.steps, run.settings.classifier.steps
    assert score == pytest.approx(classifier, rel=0.35), "the proportions of the preset"
    said = " ".join(capsys.readouterr().err.split())
    assert "r: slower than planned at step 40 of score; with 0." in said
    assert f"score {first['steps']['score']} → " in said


@pytest.mark.parametrize("slower", [0.6, 1.0, 1.05])
def test_what_comes_in_time_is_left_alone(tmp_path, monkeypatch, slower):
    Machine(monkeypatch, slower)
    run = trained(tmp_path / "r", until="score")
    assert "replanned" not in run.config
    assert run.settings.score.steps == pytest.approx(143, abs=1)


def test_a_few_steps_are_not_taken_for_the_rule(tmp_path, monkeypatch):
    """When the machine stood still for a moment, the first checkpoints come too soon to tell."""
    machine = Machine(monkeypatch, 1.0)
    real = Learner.advance

    def advance(learner, *arguments):
        machine.now += 0.5 if learner.step == 1 else 0.0
        return real(learner, *arguments)

    monkeypatch.setattr(Learner, "advance", advance)
    run = selfcal.train(
        "moons", "cg-sc-all", 0.03, tmp_path / "r", minutes=0.5, until="score", settings=SMALL | {"run.save_every": 5}
    )
    assert "replanned" not in run.config


def test_without_minutes_nobody_looks_at_the_clock(tmp_path, monkeypatch):
    Machine(monkeypatch, slower=10.0)
    monkeypatch.setattr(fitting, "too_late", lambda *a: pytest.fail("asked"))
    run = selfcal.train("moons", "cg-sc-all", 0.03, tmp_path / "r", steps=40, settings=SMALL)
    assert "replanned" not in run.config


def dying_after_the_correction(monkeypatch, saves):
    """The process ends after config.json has been written anew, and so many checkpoints more."""
    real_save, real_correction, left = checkpoints.save, fitting.with_corrected_steps, []

    def corrected(*arguments):
        found = real_correction(*arguments)
        left.append(saves)
        if not saves:
            raise KeyboardInterrupt
        return found

    def save(*arguments):
        path = real_save(*arguments)
        if left:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
        return path

    monkeypatch.setattr(fitting, "with_corrected_steps", corrected)
    monkeypatch.setattr(checkpoints, "save", save)


def score_of(run):
    """Bits of the score model's last checkpoint, and its lines of the log."""
    folder = checkpoints.path_of(run.path / "checkpoints" / "score", run.settings.score.steps)
    lines = [line for line in run.directory.journal.lines() if line["network"] == "score"]
    return {p.name: p.read_bytes() for p in folder.iterdir()}, lines


@pytest.mark.parametrize("saves", [0, 1, 2])
def test_killed_after_the_correction_it_ends_with_the_same_bits(tmp_path, monkeypatch, saves):
    """config.json was written before the first step of the new plan, and is all that the rest depends on."""
    with monkeypatch.context() as patch:
        Machine(patch, slower=1.7)
        whole = trained(tmp_path / "whole", until="score")
    assert [plan["reached"] for plan in whole.config["replanned"]] == [{"score": 40}]
    with monkeypatch.context() as patch:
        Machine(patch, slower=1.7)
        dying_after_the_correction(patch, saves)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "r", until="score")
    again = trained(tmp_path / "r", until="score")
    assert again.config["replanned"] == whole.config["replanned"]
    assert again.settings == whole.settings
    assert score_of(again) == score_of(whole)
