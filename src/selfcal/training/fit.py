"""From what a user asks for to a finished run directory; the same call resumes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from selfcal.core.progress import say
from selfcal.core.progress import wanted as shown
from selfcal.data.memory import in_memory, keep
from selfcal.data.pool import Pool
from selfcal.methods.stage import Context, Stage
from selfcal.training import processes
from selfcal.training.directory import MARK, RunDirectory, claimed, open_directory
from selfcal.training.donor import Donor
from selfcal.training.learned import IDLE, idle_in_words, learned
from selfcal.training.longer import in_words as length_in_words
from selfcal.training.longer import plans_before, steps_by_role, with_other_length
from selfcal.training.pace import Pace, corrected, paced, reached, too_late
from selfcal.training.pace import in_words as pace_in_words
from selfcal.training.plan import check_shares
from selfcal.training.processes import reduced, wait_for_everyone
from selfcal.training.pseudo_labels import complete
from selfcal.training.request import Prepared
from selfcal.training.signals import StopRequest, stop_requests
from selfcal.training.stage import Batches, Diverged, OnStep, Pause, StageTraining
from selfcal.training.threads import as_recorded
from selfcal.training.tracking import Tracking


@dataclass(frozen=True)
class Watching:
    """What whoever asked wants to see, and how far it should go."""

    until: str | None = None  # the stage after which to stop
    on_step: OnStep | None = None
    show_progress: bool | None = None  # in notebooks
    track: tuple[str, ...] = ()  # trackers by name


def fit(wanted: Prepared, out: Path, donor: Donor | None = None, watching: Watching | None = None) -> RunDirectory:
    """Train what the method needs into `out`, the score model aside if there is a donor of one."""
    accelerator, watching = processes.accelerator(), watching or Watching()
    watching = replace(watching, show_progress=shown(watching.show_progress))
    check_shares(wanted, accelerator.num_processes)
    there = open_directory(out) if (out / MARK).is_file() else None
    wanted, pace = paced(wanted, there, donor is not None, accelerator)
    with ExitStack() as held:
        if accelerator.is_main_process:
            config = wanted.config(None if donor is None else donor.sha256)
            notes = {} if pace is None else {"pace": {"minutes": wanted.request.minutes, "seconds": dict(pace.seconds)}}
            held.enter_context(claimed(out, config | notes, with_other_length))
        wait_for_everyone(accelerator)
        own = None if donor is None else donor.network
        run = open_directory(out, own)
        if accelerator.is_main_process:
            run.remember_examples(wanted.data, wanted.labels)
        if run.diverged:
            return run
        if accelerator.is_main_process:
            say_plan(run, there, wanted, pace)
        if donor is not None and accelerator.is_main_process:
            donor.take_over(run.checkpoints("score"))
        if in_memory(wanted.request.data) and accelerator.is_main_process:
            keep(wanted.data, run.path)
        wait_for_everyone(accelerator)
        if watching.show_progress and accelerator.is_main_process:
            for line in wanted.summary:
                say(line)
        if accelerator.is_main_process:
            watching = tracked(watching, run, held)
        stop = prepared_process(run, held, accelerator)
        try:
            train_stages(run, wanted, accelerator, stop, watching, pace)
        except Diverged as divergence:
            if accelerator.is_main_process:
                run.write("diverged.json", divergence.report)
            wait_for_everyone(accelerator)
    return open_directory(out, own)


def prepared_process(run: RunDirectory, held: ExitStack, accelerator: Accelerator) -> StopRequest:
    """The run's own threads, signals that ask to stop, and the caller's random state put aside, until `held` ends."""
    held.enter_context(as_recorded(run, speak=bool(accelerator.is_main_process)))
    stop = held.enter_context(stop_requests())
    held.enter_context(torch.random.fork_rng())  # every step seeds torch anew; the caller's state is left alone
    return stop


def say_plan(run: RunDirectory, there: RunDirectory | None, wanted: Prepared, pace: Pace | None) -> None:
    """What was planned, and what another length means for a run that was there."""
    if pace is not None:
        say(pace_in_words(wanted, pace))
    asked = {stage.role: stage.settings(wanted.settings).steps for stage in run.stages}
    for sentence in [] if there is None else length_in_words(there, steps_by_role(run), asked):
        say(f"{run.path}, {sentence}")


def tracked(watching: Watching, run: RunDirectory, held: ExitStack) -> Watching:
    """With its trackers told of every step, and closed at the end."""
    if not watching.track:
        return watching
    tracker = Tracking(watching.track, run)
    held.callback(tracker.finish)
    return replace(watching, on_step=both(watching.on_step, tracker))


def both(first: OnStep | None, second: OnStep) -> OnStep:
    def told(network: str, step: int, values: Mapping[str, Any]) -> None:
        if first is not None:
            first(network, step, values)
        second(network, step, values)

    return told


def train_stages(
    run: RunDirectory,
    wanted: Prepared,
    accelerator: Accelerator,
    stop: StopRequest,
    watching: Watching,
    pace: Pace | None = None,
) -> None:
    """One after the other; a later one may build on the networks of those before."""
    networks: dict[str, nn.Module] = {}
    pace = None if pace is None else pace.from_now()
    for stage in run.stages:
        if stage.role == "score" and run.own is not None:
            networks[stage.role] = run.trained(stage)  # a module of the user's own: nothing here could train it
            continue
        if pace is not None and networks and stage.role not in networks:
            run, pace = with_corrected_steps(run, networks, pace, accelerator)
        pool = Pool(wanted.labels)
        if stage.pseudo_labels:
            pool = with_pseudo_labels(run, stage, networks["classifier"], wanted, accelerator)
        batches, every, trained = Batches(wanted.data.x, pool), wanted.settings.run.preview_every, None
        while trained is None:
            context = Context(run.settings, pool.label_fraction, dict(networks))
            late = never if pace is None or stage.role in networks else lateness(run, networks, pace, accelerator)
            training = StageTraining(run, stage, context, batches, accelerator, watching.on_step, every, late)
            trained = training.finish(stop, bool(watching.show_progress))
            if trained is None and pace is not None:
                run, pace = with_corrected_steps(run, networks, pace, accelerator, stage)
        networks[stage.role] = trained
        if accelerator.is_main_process:
            fraction = learned(run.journal.lines()).get(stage.name, {}).get("sc_fraction", 0.0)
            if fraction > IDLE:
                say(f"{run.path}, {stage.name}: {idle_in_words(fraction, stage.settings(run.settings))}")
        if stage.name == watching.until:
            break


def never() -> bool:
    return False


def lateness(run: RunDirectory, finished: Mapping[str, nn.Module], pace: Pace, accelerator: Accelerator) -> Pause:
    """Whether the run comes too late, by the clock of the main process."""
    roles = {*finished}

    def agreed() -> bool:
        vote = float(accelerator.is_main_process and too_late(run, roles, pace))
        return bool(reduced(accelerator, torch.tensor([vote], device=accelerator.device), "sum") > 0)

    return agreed


def with_corrected_steps(
    run: RunDirectory,
    finished: Mapping[str, nn.Module],
    pace: Pace,
    accelerator: Accelerator,
    under_way: Stage | None = None,
) -> tuple[RunDirectory, Pace]:
    """When a network begins, or is late: the steps of all that are not finished, in view of the time that is left.

    Noted in config.json before it is true. Returns the pace as it has been seen, too.
    """
    if accelerator.is_main_process:
        steps = corrected(run, finished, pace)
        notes = {} if under_way is None else plans_before(run)
        run.write(MARK, run.config | notes | {"settings": run.settings.with_steps(steps).model_dump(mode="json")})
        words = ", ".join(f"{role} {getattr(run.settings, role).steps:,} → {n:,} steps" for role, n in steps.items())
        why = (
            "" if under_way is None else f"slower than planned at step {run.step_of(under_way):,} of {under_way.name}; "
        )
        say(f"{run.path}: {why}with {max(0.0, pace.left) / 60:.3g} minutes left, {words}")
    wait_for_everyone(accelerator)
    return open_directory(run.path, run.own), pace.as_seen(reached(run, finished))


def with_pseudo_labels(
    run: RunDirectory, stage: Stage, classifier: nn.Module, wanted: Prepared, accelerator: Accelerator
) -> Pool:
    """The pool as the classifier before sees it; how many labels it gave goes into pseudo_labels.json."""
    sure = run.settings.terms.pl_threshold
    y, report = complete(
        classifier, wanted.data, Pool(wanted.labels), run.noise.sigma_min, sure, device=accelerator.device
    )
    before = run.pseudo_labels or {}
    if accelerator.is_main_process and before.get(stage.name) != report:
        run.write("pseudo_labels.json", before | {stage.name: report})
    return Pool(y)
