"""`--minutes`: how many steps each network gets, from how fast this machine takes them.

The rule: all networks of a method are made shorter or longer by one factor, so that the steps of the preset keep
their proportions. Real steps are measured first, for a fortieth of the time. When a network begins, those that have
not begun are corrected by what is left of the time and by how fast the machine was so far; at a checkpoint, the one
under way is too, if all would come too late. All numbers of steps go into config.json before the steps are taken:
whatever the clock said, the run depends on config.json alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from accelerate import Accelerator

from selfcal.core.errors import SelfcalError
from selfcal.core.progress import say
from selfcal.core.settings import Settings
from selfcal.methods.stage import Stage
from selfcal.training import processes
from selfcal.training.directory import RunDirectory
from selfcal.training.plan import Trial, trials
from selfcal.training.processes import reduced
from selfcal.training.request import Prepared

Clock = Callable[[], float]
MEASURING = 1 / 40  # of the time
RESERVE = 0.04  # of the time, for previews, checkpoints and the log
WARM, FEWEST_MEASURED = 2, 3  # steps before the measurement, and in it
FEWEST_STEPS = 20  # below which nothing is learned at all
LEAST = 0.5  # of its planned steps, which a correction leaves a network
ROUGH = 0.4  # of the preset's steps, below which that is said before the training and not after it
LATE = 0.15  # of the time: what comes later than that is planned anew at a checkpoint
ENOUGH = 0.1  # of the time, which steps must have been planned to take before they are judged by


@dataclass(frozen=True)
class Pace:
    """How long a step of each stage takes, and until when there is time."""

    seconds: Mapping[str, float]  # of a step, by stage
    began: float  # when training began, on the clock
    ends: float
    clock: Clock = time.monotonic
    done: Mapping[str, int] = field(default_factory=dict)  # steps by stage when it began
    whole: float = math.inf  # seconds in all, of which `LATE` and `ENOUGH` are parts
    share: float = 1.0  # of the preset's steps, the least that a network gets

    @property
    def left(self) -> float:
        return self.ends - self.clock()

    def slowness(self, planned: float) -> float:
        """How much longer what has been done took than it was planned to; a busy hour is not taken for the rule."""
        return min(2.0, max(0.5, (self.clock() - self.began) / planned)) if planned else 1.0

    def planned(self, reached: Mapping[str, int]) -> float:
        """The seconds that the steps since it began were planned to take."""
        return sum(each * (reached.get(name, 0) - self.done.get(name, 0)) for name, each in self.seconds.items())

    def from_now(self) -> Pace:
        """What came between the plan and the first step says nothing of how long a step takes."""
        return replace(self, began=self.clock())

    def as_seen(self, reached: Mapping[str, int]) -> Pace:
        """From here on, where the networks have taken so many steps: with the seconds that steps took until now."""
        slowness = self.slowness(self.planned(reached))
        seconds = {name: each * slowness for name, each in self.seconds.items()}
        return replace(self, seconds=seconds, began=self.clock(), done=reached)


def paced(
    wanted: Prepared, there: RunDirectory | None, taken_over: bool, accelerator: Accelerator
) -> tuple[Prepared, Pace | None]:
    """The request with as many steps as fit into its minutes, and the pace it was planned at.

    there: the run that gets another length; then minutes are those in all, of which it has had some.
    taken_over: the score model comes from elsewhere, and takes no time.
    """
    minutes, clock = wanted.request.minutes, time.monotonic
    if minutes is None or (there is not None and (there.config.get("asked") or {}).get("minutes") == minutes):
        return wanted, None
    began = clock()
    stages = [s for s in wanted.method.stages(wanted.settings) if not (taken_over and s.name == "score")]
    if accelerator.is_main_process:
        say(f"measuring how fast this machine takes steps, for about {MEASURING * 60 * minutes:.0f} s")
    seconds = measured(wanted, {s.name for s in stages}, MEASURING * 60 * minutes, accelerator, clock)
    before, done = 0.0, dict[str, int]()
    if there is not None:
        before, done = had_before(there, stages, seconds), {stage.name: there.step_of(stage) for stage in stages}
    pace = Pace(seconds, clock(), began + 60 * (minutes - before), clock, done, 60 * minutes)
    planned = wanted.settings if there is None else there.settings
    steps = steps_within(pace.left * (1 - RESERVE), stages, planned, seconds, done)
    if there is None:
        check_enough(steps, minutes)
        pace = replace(pace, share=min(n / getattr(planned, role).steps for role, n in steps.items()))
    else:
        check_left(there, stages, pace, before, steps)
    return wanted.with_steps(steps), pace


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
    left: float,
    stages: Sequence[Stage],
    settings: Settings,
    seconds: Mapping[str, float],
    done: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """By role: the settings' steps times one factor, such that what is still to do takes `left` seconds.

    done: the steps that stages have taken already. Σ max(0, factor · steps − done) · seconds = left; a stage that
    has more than its share keeps what it has, and the others share the time.
    """
    done, sharing, factor = done or {}, list(stages), 0.0
    while sharing:
        had = sum(done.get(stage.name, 0) * seconds[stage.name] for stage in sharing)
        whole = sum(stage.settings(settings).steps * seconds[stage.name] for stage in sharing)
        factor = (max(0.0, left) + had) / whole
        within = [s for s in sharing if done.get(s.name, 0) <= s.settings(settings).steps * factor * (1 + 1e-9)]
        if within == sharing:
            break
        sharing = within
    steps = {stage.role: int(stage.settings(settings).steps * factor) for stage in stages}
    return steps | {
        role: max(steps[role], *(done.get(stage.name, 0) for stage in stages if stage.role == role), 0)
        for role in steps
    }


def had_before(there: RunDirectory, stages: Iterable[Stage], seconds: Mapping[str, float]) -> float:
    """The minutes that a run has had: if it is finished, those it was planned for, or else its steps at this
    machine's pace."""
    planned = None if there.unfinished else (there.config.get("asked") or {}).get("minutes")
    return planned or sum(there.step_of(stage) * seconds[stage.name] for stage in stages) / 60


def check_left(
    there: RunDirectory, stages: Sequence[Stage], pace: Pace, before: float, steps: Mapping[str, int]
) -> None:
    """There must be time left, and enough for every network that has not begun."""
    finished, poor = not there.unfinished, [s for s in stages if not pace.done[s.name] and steps[s.role] < FEWEST_STEPS]
    if pace.left > 0 and not poor:
        return
    had = f"{there.path} has had about {before:.3g} minutes already"
    if finished:
        raise SelfcalError(f"{had}; --minutes is the time in all, so give more")
    raise SelfcalError(
        f"{had}, as its steps take at this machine's present pace; --minutes is the time in all, so give "
        f"{least_minutes(there, stages, pace, before):g} at least: then the networks get equal shares of their plan. "
        "Or say --steps: a network that has taken so many ends where it is"
    )


def least_minutes(there: RunDirectory, stages: Sequence[Stage], pace: Pace, before: float) -> float:
    """The time in all, generously, in which every network gets the share of its planned steps that one has had."""
    steps = {stage.name: stage.settings(there.settings).steps for stage in stages}
    share = max(max(pace.done[name], FEWEST_STEPS) / steps[name] for name in steps)
    needed = sum(max(0.0, share * n - pace.done[name]) * pace.seconds[name] for name, n in steps.items())
    minutes = (before + needed / 60 / (1 - RESERVE)) / (1 - 2 * MEASURING)
    unit = 10.0 ** (math.floor(math.log10(minutes)) - 1)
    return round(math.ceil(minutes / unit) * unit, 9)  # two digits are enough, rounded up


def check_enough(steps: Mapping[str, int], minutes: float) -> None:
    if poor := [role for role, n in steps.items() if n < FEWEST_STEPS]:
        raise SelfcalError(
            f"--minutes {minutes:g}: in that time the {poor[0]} network takes {steps[poor[0]]} steps, of which "
            f"{FEWEST_STEPS} are the least and thousands are usual; give more time, smaller images or a smaller network"
        )


def reached(run: RunDirectory, finished: Iterable[str]) -> dict[str, int]:
    """By stage: where it is, or its last step where its role is finished."""
    finished = {*finished}
    steps = {stage.name: (stage, stage.settings(run.settings).steps) for stage in run.stages}
    return {name: n if stage.role in finished else run.step_of(stage) for name, (stage, n) in steps.items()}


def corrected(run: RunDirectory, finished: Iterable[str], pace: Pace) -> dict[str, int]:
    """By role, the steps that networks which are not finished should get now, in view of the time that is left."""
    finished = {*finished}
    stages, done = [stage for stage in run.stages if stage.role not in finished], reached(run, finished)
    seconds = pace.as_seen(done).seconds
    steps = steps_within(pace.left * (1 - RESERVE), stages, run.settings, seconds, done)
    planned = {stage.role: stage.settings(run.settings).steps for stage in stages}
    return {role: max(n, int(LEAST * planned[role])) for role, n in steps.items()}


def too_late(run: RunDirectory, finished: Iterable[str], pace: Pace) -> bool:
    """Whether the plan would end so late, at the pace seen by now, that it should be corrected on the way."""
    done = reached(run, finished)
    if pace.planned(done) < ENOUGH * pace.whole:
        return False
    seconds = pace.as_seen(done).seconds
    steps = {stage.name: stage.settings(run.settings).steps for stage in run.stages}
    needed = sum((steps[name] - done[name]) * each for name, each in seconds.items())
    return needed - pace.left > LATE * pace.whole


def in_words(wanted: Prepared, pace: Pace) -> str:
    """The plan, for the terminal."""
    parts = []
    for stage in wanted.method.stages(wanted.settings):
        if (each := pace.seconds.get(stage.name)) is not None:
            steps = stage.settings(wanted.settings).steps
            parts.append(f"{stage.name} to step {steps:,} at {each:.3g} s each")
    rough = f" That is {pace.share:.0%} of the preset's steps: pictures will be rough." if pace.share < ROUGH else ""
    return (
        f"{wanted.request.minutes:g} minutes of training in all: {', '.join(parts)}, measured on this machine; "
        f"the steps keep the proportions of the preset. Sampling and evaluation come on top.{rough}"
    )


def within_minutes(wanted: Prepared) -> Prepared:
    """As a new run would be planned; nothing is written."""
    return paced(wanted, None, False, processes.accelerator())[0]
