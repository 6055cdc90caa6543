"""`--minutes`: how many steps each network gets, from how fast this machine takes them.

The rule: all networks of a method are made shorter or longer by one factor, so that the steps of the preset keep
their proportions. Real steps are measured first, for a fortieth of the time. When a network begins, those that have
not begun are corrected by what is left of the time and by how fast the machine was so far. All numbers of steps go
into config.json before the steps are taken: whatever the clock said, the run depends on config.json alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from accelerate import Accelerator

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings
from selfcal.methods.stage import Stage
from selfcal.training import processes
from selfcal.training.directory import RunDirectory
from selfcal.training.longer import check_finished
from selfcal.training.plan import Trial, trials
from selfcal.training.processes import reduced
from selfcal.training.request import Prepared

Clock = Callable[[], float]
MEASURING = 1 / 40  # of the time
RESERVE = 0.04  # of the time, for previews, checkpoints and the log
WARM, FEWEST_MEASURED = 2, 3  # steps before the measurement, and in it
FEWEST_STEPS = 20  # below which nothing is learned at all
LEAST = 0.5  # of its planned steps, which a correction leaves a network


@dataclass(frozen=True)
class Pace:
    """How long a step of each stage takes, and until when there is time."""

    seconds: Mapping[str, float]  # of a step, by stage
    began: float  # when training began, on the clock
    ends: float
    clock: Clock = time.monotonic

    @property
    def left(self) -> float:
        return self.ends - self.clock()

    def slowness(self, planned: float) -> float:
        """How much longer what has been done took than it was planned to; a busy hour is not taken for the rule."""
        return min(2.0, max(0.5, (self.clock() - self.began) / planned)) if planned else 1.0


def paced(
    wanted: Prepared, there: RunDirectory | None, taken_over: bool, accelerator: Accelerator
) -> tuple[Prepared, Pace | None]:
    """The request with as many steps as fit into its minutes, and the pace it was planned at.

    there: the run that it makes longer; then minutes are those in all, of which it has had some.
    taken_over: the score model comes from elsewhere, and takes no time.
    """
    minutes, clock = wanted.request.minutes, time.monotonic
    if minutes is None or (there is not None and (there.config.get("asked") or {}).get("minutes") == minutes):
        return wanted, None
    if there is not None:
        check_finished(there)
    began = clock()
    stages = [s for s in wanted.method.stages(wanted.settings) if not (taken_over and s.name == "score")]
    seconds = measured(wanted, {s.name for s in stages}, MEASURING * 60 * minutes, accelerator, clock)
    before = 0.0 if there is None else had_before(there, stages, seconds)
    pace = Pace(seconds, clock(), began + 60 * (minutes - before), clock)
    if there is None:
        steps = steps_within(pace.left * (1 - RESERVE), stages, wanted.settings, seconds)
        check_enough(steps, minutes, wanted)
        return wanted.with_steps(steps), pace
    if before >= minutes:
        raise SelfcalError(
            f"{there.path} has had about {before:.3g} minutes already; --minutes is the time in all, so give more"
        )
    more = steps_within(pace.left * (1 - RESERVE), stages, there.settings, seconds)
    return wanted.with_steps({role: getattr(there.settings, role).steps + n for role, n in more.items()}), pace


def measured(
    wanted: Prepared, names: set[str], budget: float, accelerator: Accelerator, clock: Clock = time.monotonic
) -> dict[str, float]:
    """Mean seconds of a step by stage, on real batches; as many steps as the budget allows, but a few at least."""
    seconds = {}
    for stage, trial in trials(wanted, accelerator):
        if stage.name in names:
            seconds[stage.name] = of_one_step(trial, stage.settings(wanted.settings).batch, budget / len(names), clock)
    return seconds


def of_one_step(trial: Trial, batch: int, budget: float, clock: Clock) -> float:
    def mean(steps: int) -> float:
        began = clock()
        for _ in range(steps):
            trial.step(batch)
        accelerator = trial.learner.accelerator
        return float(reduced(accelerator, torch.tensor((clock() - began) / steps, device=accelerator.device), "mean"))

    mean(WARM)  # the first steps fetch memory and are slower
    guess = mean(1)  # the same in all processes, which must take the same number of steps
    return mean(max(FEWEST_MEASURED, int(budget / max(guess, 1e-6)) - WARM - 1))


def steps_within(
    left: float, stages: Iterable[Stage], settings: Settings, seconds: Mapping[str, float]
) -> dict[str, int]:
    """By role: the settings' steps times one factor, such that all stages together take `left` seconds."""
    whole = sum(stage.settings(settings).steps * seconds[stage.name] for stage in stages)
    factor = max(0.0, left) / whole
    return {stage.role: int(stage.settings(settings).steps * factor) for stage in stages}


def had_before(there: RunDirectory, stages: Iterable[Stage], seconds: Mapping[str, float]) -> float:
    """The minutes that a run has had: those it was planned for, or else its steps at this machine's pace."""
    planned = (there.config.get("asked") or {}).get("minutes")
    return planned or sum(stage.settings(there.settings).steps * seconds[stage.name] for stage in stages) / 60


def check_enough(steps: Mapping[str, int], minutes: float, wanted: Prepared) -> None:
    if poor := [role for role, n in steps.items() if n < FEWEST_STEPS]:
        raise SelfcalError(
            f"--minutes {minutes:g}: in that time the {poor[0]} network takes {steps[poor[0]]} steps, of which "
            f"{FEWEST_STEPS} are the least and thousands are usual; give more time, smaller images or a smaller network"
        )


def corrected(run: RunDirectory, begun: Iterable[str], pace: Pace) -> dict[str, int]:
    """By role, the steps that networks which have not begun should get now, in view of the time that is left."""
    begun = {*begun}
    stages = [stage for stage in run.stages if stage.role not in begun]
    done = [stage for stage in run.stages if stage.role in begun and stage.name in pace.seconds]
    slowness = pace.slowness(sum(stage.settings(run.settings).steps * pace.seconds[stage.name] for stage in done))
    seconds = {name: each * slowness for name, each in pace.seconds.items()}
    steps = steps_within(pace.left * (1 - RESERVE), stages, run.settings, seconds)
    planned = {stage.role: stage.settings(run.settings).steps for stage in stages}
    return {role: max(n, int(LEAST * planned[role])) for role, n in steps.items()}


def in_words(wanted: Prepared, pace: Pace) -> str:
    """The plan, for the terminal."""
    parts = []
    for stage in wanted.method.stages(wanted.settings):
        if (each := pace.seconds.get(stage.name)) is not None:
            steps = stage.settings(wanted.settings).steps
            parts.append(f"{stage.name} to step {steps:,} at {each:.3g} s each")
    return (
        f"{wanted.request.minutes:g} minutes of training in all: {', '.join(parts)}, measured on this machine; "
        "the steps keep the proportions of the preset. Sampling and evaluation come on top."
    )


def within_minutes(wanted: Prepared) -> Prepared:
    """As a new run would be planned; nothing is written."""
    return paced(wanted, None, False, processes.accelerator())[0]
