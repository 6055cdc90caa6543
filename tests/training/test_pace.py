"""`--minutes`: the arithmetic with a clock that the test turns, and one real run with a loose bound."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import pytest
from accelerate import Accelerator

import selfcal
import selfcal.methods.table
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.training import pace as pacing
from selfcal.training.directory import open_directory
from selfcal.training.pace import Pace, corrected, measured, paced, steps_within
from selfcal.training.plan import Trial
from selfcal.training.request import Request

SMALL = {"run.save_every": 100, "score.width": 8, "classifier.width": 8, "score.batch": 16, "classifier.batch": 16}


class Clock:
    """Every step of a stage takes the time that the test says."""

    def __init__(self, monkeypatch, **seconds):
        self.now, self.seconds, self.steps = 1000.0, seconds, 0

        def step(trial, batch):
            assert batch == trial.stage.settings(trial.context.settings).batch, "as large as in the training"
            self.now += self.seconds[trial.stage.role]
            self.steps += 1

        monkeypatch.setattr(Trial, "step", step)
        monkeypatch.setattr(pacing.time, "monotonic", self)

    def __call__(self):
        return self.now


def request(minutes=20.0, **more):
    return Request("moons", "cg-sc-all", 0.03, minutes=minutes, **more).prepared()


def test_the_steps_fill_the_minutes_in_the_presets_proportions(monkeypatch):
    clock = Clock(monkeypatch, score=0.3, classifier=0.1)
    wanted = request(settings={"conditional.width": 8})
    plain = wanted.settings
    planned, pace = paced(wanted, None, False, Accelerator())
    score, classifier = planned.settings.score.steps, planned.settings.classifier.steps
    assert score / classifier == pytest.approx(plain.score.steps / plain.classifier.steps, rel=0.01)
    total = clock.now - 1000 + score * 0.3 + classifier * 0.1
    assert 0.93 * 1200 < total < 1200
    assert clock.now - 1000 < 0.04 * 1200, "measuring takes a small part of it"
    assert pace.seconds == pytest.approx({"score": 0.3, "classifier": 0.1})
    assert planned.settings.conditional == plain.conditional


@pytest.mark.parametrize("slower", [0.7, 1.0, 1.4])
def test_what_comes_slower_or_faster_than_measured_is_made_up_for(monkeypatch, tmp_path, slower):
    """The guide's steps are chosen anew when it begins: the whole stays within 20 %."""
    clock = Clock(monkeypatch, score=0.3, classifier=0.3)
    planned, pace = paced(request(), None, False, Accelerator())
    (tmp_path / "config.json").write_text(json.dumps(planned.config()))
    run = open_directory(tmp_path)
    clock.now += planned.settings.score.steps * 0.3 * slower
    steps = corrected(run, ["score"], pace)
    assert steps.keys() == {"classifier"}
    total = clock.now - 1000 + steps["classifier"] * 0.3 * slower
    assert 0.8 * 1200 < total < 1.2 * 1200
    assert total == pytest.approx(1200, rel=0.04), "the rest is for checkpoints and previews"


def test_a_correction_leaves_half_of_the_plan(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, score=0.3, classifier=0.3)
    planned, pace = paced(request(), None, False, Accelerator())
    (tmp_path / "config.json").write_text(json.dumps(planned.config()))
    clock.now += 10_000
    steps = corrected(open_directory(tmp_path), ["score"], pace)
    assert steps["classifier"] == planned.settings.classifier.steps // 2


def test_stages_of_one_role_share_their_steps(monkeypatch):
    Clock(monkeypatch, score=0.1, classifier=0.1)
    wanted = replace(request(), method=selfcal.methods.table.METHODS["cg-sc-pl"])
    planned, _ = paced(wanted, None, False, Accelerator())
    s = planned.settings
    assert s.score.steps * 0.1 + 2 * s.classifier.steps * 0.1 == pytest.approx(1200, rel=0.1)


def test_a_score_model_from_elsewhere_takes_no_time(monkeypatch):
    Clock(monkeypatch, score=100.0, classifier=0.1)
    wanted = request()
    planned, pace = paced(wanted, None, True, Accelerator())
    assert planned.settings.score == wanted.settings.score
    assert planned.settings.classifier.steps * 0.1 == pytest.approx(1200, rel=0.1)
    assert pace.seconds.keys() == {"classifier"}


def test_steps_within_is_exact():
    wanted = request(settings={"score.width": 8})
    stages = wanted.method.stages(wanted.settings)
    steps = steps_within(100.0, stages, wanted.settings, {"score": 0.02, "classifier": 0.03})
    assert steps == {"score": 2000, "classifier": 2000}  # 2000 · .02 + 2000 · .03 = 100; both have 4000 in the preset


def test_a_measurement_is_the_mean_of_real_steps():
    wanted = request(settings={"score.width": 8, "classifier.width": 8})
    began = time.monotonic()
    seconds = measured(wanted, {"score"}, 0.05, Accelerator())
    assert 0 < seconds["score"] < time.monotonic() - began
    assert "classifier" not in seconds


def test_a_real_run_keeps_to_its_minutes(tmp_path, capsys, monkeypatch):
    """Loosely, and from above in the processor's time: a starved machine is late; the rule itself is tested above."""
    monkeypatch.setattr(pacing, "LATE", math.inf)  # a network corrected on its way is not a run of so many steps
    began, worked = time.monotonic(), time.process_time()
    run = selfcal.train("moons", "cg-sc-all", 0.03, tmp_path / "r", minutes=0.1, settings=SMALL)
    assert time.monotonic() - began > 0.3 * 6
    assert time.process_time() - worked < 2 * 6
    said = " ".join(capsys.readouterr().err.split())
    assert "0.1 minutes of training in all: score to step" in said
    assert "minutes left, classifier" in said
    assert run.describe()["finished"]
    assert run.config["asked"]["minutes"] == 0.1
    assert run.config["pace"]["seconds"].keys() == {"score", "classifier"}
    before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file()}
    again = selfcal.train("moons", "cg-sc-all", 0.03, tmp_path / "r", minutes=0.1, settings=SMALL)
    assert before == {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file()}, "the same command rests"
    by_hand = {"score.steps": run.settings.score.steps, "classifier.steps": run.settings.classifier.steps}
    same = selfcal.train("moons", "cg-sc-all", 0.03, tmp_path / "same", settings=SMALL | by_hand)
    assert again.describe()["weights_sha256"] == same.describe()["weights_sha256"], "bits come from config.json alone"


@pytest.fixture
def brief(monkeypatch):
    """Planned as if every step took a second: few steps, and no waiting."""
    monkeypatch.setattr(pacing, "of_one_step", lambda *a: 1.0)


def trained(out, minutes, **more):
    return selfcal.train("moons", "cg-sc-all", 0.03, out, minutes=minutes, settings=SMALL, **more)


def test_more_minutes_make_it_longer(tmp_path, brief, monkeypatch):
    monkeypatch.setattr("selfcal.training.fit.corrected", lambda run, begun, pace: {})
    run = trained(tmp_path / "r", 1.0)
    first = run.settings.score.steps
    assert first == pytest.approx(0.96 * 30, abs=1)
    longer = trained(tmp_path / "r", 3.0)
    assert longer.settings.score.steps == pytest.approx(3 * first, abs=3)
    assert longer.config["lengthened"] == [{"score": first, "classifier": first}]
    assert longer.config["asked"]["minutes"] == 3.0
    assert trained(tmp_path / "r", 3.0).settings == longer.settings
    with pytest.raises(SelfcalError, match="has had about 3 minutes already; --minutes is the time in all"):
        trained(tmp_path / "r", 2.0)


def test_minutes_after_steps(tmp_path, brief):
    """Its steps count as the time that they would take here."""
    selfcal.train("moons", "cg-sc-all", 0.03, tmp_path / "r", steps=30, settings=SMALL)
    assert trained(tmp_path / "r", 2.0).settings.score.steps == pytest.approx(30 + 0.96 * 30, abs=1)


def test_an_unfinished_plan_goes_on_with_its_own_steps(tmp_path, brief):
    run = trained(tmp_path / "r", 1.0, until="score")
    assert run.directory.unfinished.keys() == {"classifier"}
    done = trained(tmp_path / "r", 1.0)
    assert done.settings == run.settings
    assert done.describe()["finished"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "a time above 0 is needed"),
        (["--minutes", "nan"], "a time above 0 is needed"),
        (["--minutes", "1", "--steps", "10"], "leave out --steps, or --minutes"),
        (["--minutes", "1", "--set", "score.steps=9"], "leave out --set score.steps, or --minutes"),
        (["--minutes", "0.0001"], "give more time, smaller images or a smaller network"),
    ],
)
def test_what_is_refused(tmp_path, capsys, words, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "moons", "--labels", "0.03", "--out", str(tmp_path / "r"), *words])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "r").exists()


def test_a_dry_run_shows_the_plan(tmp_path, capsys, brief):
    with pytest.raises(SystemExit):
        cli.main(["train", "moons", "--minutes", "1", "--dry-run", "--out", str(tmp_path / "r")])
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  steps")]
    assert 27 <= int(row[1]) <= 29
    assert not (tmp_path / "r").exists()


def test_show_tells_the_plan(tmp_path, capsys, brief):
    trained(tmp_path / "r", 1.0)
    with pytest.raises(SystemExit):
        cli.main(["show", str(tmp_path / "r")])
    out = " ".join(capsys.readouterr().out.split())
    assert "planned for 1 minutes; seconds of a step: score 1, classifier 1" in out
    assert "preset moons" in out


def test_pace_knows_what_is_left():
    assert Pace({}, 0.0, 10.0, lambda: 4.0).left == 6.0
    assert Pace({}, 0.0, 10.0, lambda: 6.0).slowness(4.0) == 1.5
    assert Pace({}, 0.0, 10.0, lambda: 600.0).slowness(4.0) == 2.0
