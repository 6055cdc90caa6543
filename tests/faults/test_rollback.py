"""Losses and gradients that leave the finite numbers: back to the last good checkpoint with a lower learning rate."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import selfcal
import small
from selfcal.training import checkpoints
from selfcal.training import stage as stages
from selfcal.training.loop import Step


@pytest.fixture
def trouble(monkeypatch):
    """trouble(step, below): the score's loss is nan at that step unless the learning rate was lowered enough."""
    real = stages.finite_losses
    planned: list[tuple[int, int]] = []

    def faulty(network: str, step: Step):
        for at, cured_after in planned:
            factor = step.lr / stages_lr(step.number)
            if network == "score" and step.number == at and factor > 0.5**cured_after * 1.01:
                broken = Step(step.number, {k: v * torch.nan for k, v in step.losses.items()}, step.grad_norm, step.lr)
                return real(network, broken)
        return real(network, step)

    def stages_lr(step):
        from selfcal.core.settings import resolve
        from selfcal.training.learning_rate import learning_rate

        return learning_rate(resolve("moons", small.SETTINGS, small.STEPS).score, step - 1)

    monkeypatch.setattr(stages, "finite_losses", faulty)
    return lambda at, cured_after=1: planned.append((at, cured_after))


def events(out):
    return [line for line in small.log(out) if "event" in line]


def test_one_rollback(tmp_path, trouble):
    trouble(18)
    run = small.train(tmp_path / "run")
    assert run.diverged is None
    (event,) = events(run.path)
    assert event["event"] == "rolled back"
    assert (event["step"], event["to"], event["lr_factor"], event["dsm"]) == (18, 15, 0.5, "nan")
    lines = [line for line in small.log(run.path) if line["network"] == "score"]
    assert [line["step"] for line in lines] == [*range(1, 18), 18, *range(16, 31)]
    assert lines[18]["lr"] == pytest.approx(0.5 * lines[15]["lr"])
    assert len(run.sample(count=2, steps=2)) == 2


def test_a_checkpoint_of_bad_weights_is_passed_over(tmp_path, trouble):
    """The loss of step 16 is that of the weights saved at 15; and one that led to trouble once is not tried again."""
    trouble(16, cured_after=3)
    out = small.train(tmp_path / "run", **{"run.keep": 3}).path
    assert [(e["step"], e["to"], e["lr_factor"]) for e in events(out)] == [(16, 10, 0.5), (16, 5, 0.25), (16, 5, 0.125)]


def test_after_three_rollbacks_it_stops_with_what_was_seen(tmp_path, trouble):
    trouble(13, cured_after=9)
    run = small.train(tmp_path / "run")
    assert run.diverged == {
        "network": "score",
        "step": 13,
        "losses": {"dsm": "nan"},
        "grad_norm": run.diverged["grad_norm"],
        "rollbacks": 3,
    }
    assert [e["event"] for e in events(run.path)] == ["rolled back"] * 3 + ["diverged"]
    before = small.contents(run.path)
    small.train(run.path)
    assert small.contents(run.path) == before


def test_a_gradient_that_explodes(tmp_path, monkeypatch):
    step = Step(7, {"ce": torch.tensor(1.0)}, torch.tensor(2e8), 0.1)
    with pytest.raises(stages.Diverged) as seen:
        stages.finite_losses("classifier", step)
    assert float(seen.value.report["grad_norm"]) == pytest.approx(2e8)
    for value in (torch.nan, torch.inf, -torch.inf, 1e9):
        with pytest.raises(stages.Diverged):
            stages.finite_losses("classifier", Step(7, {"ce": torch.tensor(value)}, torch.tensor(1.0), 0.1))


def test_numbers_that_really_leave_the_finite(tmp_path):
    run = small.train(tmp_path / "run", **{"score.lr": 1e9, "score.clip": 1e9})
    assert run.diverged["network"] == "score"
    assert [e["event"] for e in events(run.path)] == ["rolled back"] * 3 + ["diverged"]
    assert all(json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines())


def test_rollbacks_are_the_same_however_often_a_run_is_killed(tmp_path, trouble):
    """Two rollbacks; killed before a change to the disk, or stopped by a signal, at places all over the run."""
    from test_interruption import signals_itself
    from test_kills import dies_at

    trouble(18)
    trouble(23, cured_after=2)
    whole = small.train(tmp_path / "whole").path
    assert [e["to"] for e in events(whole)] == [15, 20]
    kills = 0
    for number in range(5, 2000, 9 if small.LONG else 80):
        out = tmp_path / f"at-{number}"
        died = small.killed(small.forked(lambda out=out, number=number: dies_at(number, lambda: small.train(out))))
        kills += died
        assert small.ended(small.forked(lambda out=out: small.train(out))) == 0
        small.assert_same(whole, out)
        shutil.rmtree(out)
        if not died:
            break
    assert kills >= 3
    for at in (16, 21, 26):
        import signal

        out = tmp_path / f"signal-{at}"
        work = lambda out=out, at=at: signals_itself(signal.SIGTERM, at, lambda: small.train(out))  # noqa: E731
        assert small.ended(small.forked(work)) == 0
        small.train(out)
        small.assert_same(whole, out)


def test_what_stays_on_the_shelf(tmp_path):
    run = small.train(tmp_path / "run", steps=43, **{"run.keep": 2, "run.keep_every": 15})
    assert checkpoints.steps_saved(run.path / "checkpoints" / "score") == [15, 30, 40, 43]
    assert selfcal.load(run.path).describe()["step"] == {"score": 43, "classifier": 43}
