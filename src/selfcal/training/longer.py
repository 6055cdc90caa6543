"""Another length for a run that is there: what may change, what config.json then says, and what it means in words.

A finished run can be made longer. One that is not finished can be made shorter, too: networks that have not begun get
the steps that are asked for; the one under way gets them, or ends where it is if it is there already; a finished one
keeps its steps unless more are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfcal.core.settings import NETWORKS, Settings
from selfcal.methods.stage import Context, Stage
from selfcal.training.directory import RunDirectory
from selfcal.training.learning_rate import learning_rate


def with_other_length(there: RunDirectory, config: dict[str, Any], differing: Sequence[str]) -> dict[str, Any] | None:
    """The config.json of the run with the length that `config` asks for; None where it may not have it."""
    if not differing or not {*differing} <= {f"settings.{role}.steps" for role in NETWORKS}:
        return None
    wanted, before = Settings.model_validate(config["settings"]), steps_by_role(there)
    asked = {role: getattr(wanted, role).steps for role in before}
    changed = [role for role in before if before[role] != asked[role]]
    if not all(says_steps(config, role) for role in changed):
        return None
    if not there.unfinished and not all(asked[role] > before[role] for role in changed):
        return None  # nothing can be taken back
    least = least_steps(there)
    settings = wanted.with_steps({role: max(asked[role], least[role]) for role in before})
    threads = {"threads": there.config.get("threads", config["threads"])}
    return config | threads | plans_before(there) | {"settings": settings.model_dump(mode="json")}


def steps_by_role(run: RunDirectory) -> dict[str, int]:
    return {stage.role: stage.settings(run.settings).steps for stage in run.stages}


def least_steps(run: RunDirectory) -> dict[str, int]:
    """By role: where its network is by now; stages of one role have one number of steps."""
    reached = dict.fromkeys(steps_by_role(run), 0)
    for stage in run.stages:
        reached[stage.role] = max(reached[stage.role], run.step_of(stage))
    return reached


def says_steps(config: Mapping[str, Any], role: str) -> bool:
    """Whether the user asked for a length, or only a preset did."""
    said = config["asked"]
    return said["steps"] is not None or said["minutes"] is not None or f"{role}.steps" in said["settings"]


def plans_before(there: RunDirectory) -> dict[str, Any]:
    """For config.json: at which steps a run had been finished before, or what was planned and where it was then."""
    notes: dict[str, Any] = {key: there.config[key] for key in ("lengthened", "replanned") if key in there.config}
    if not there.unfinished:
        return notes | {"lengthened": [*notes.get("lengthened", []), steps_by_role(there)]}
    reached = {stage.name: there.step_of(stage) for stage in there.stages}
    plan = {"steps": steps_by_role(there), "reached": {name: step for name, step in reached.items() if step}}
    return notes | {"replanned": [*notes.get("replanned", []), plan]}


def in_words(there: RunDirectory, steps: Mapping[str, int], asked: Mapping[str, int]) -> list[str]:
    """For each network whose length changes: what it was, what it will be, and whether it equals a run of that length.

    there: the run as it was before. steps, asked: by role, what it gets and what was asked for.
    """
    sentences, further = [], False  # whether networks that are finished are trained further
    for stage in there.stages:
        before, after, reached = stage.settings(there.settings).steps, steps[stage.role], there.step_of(stage)
        if before == after and asked[stage.role] < after:
            sentences.append(f"{stage.name}: keeps its {after:,} steps, which it has taken already")
        if before == after:
            continue
        if reached >= before:
            sentences.append(trained_further(stage, there.settings, after))
            further = True
        elif not reached:
            sentences.append(f"{stage.name}: {after:,} steps instead of {before:,}")
        else:
            sentences.append(under_way(stage, there.settings, reached, after, further))
    return sentences


def trained_further(stage: Stage, settings: Settings, after: int) -> str:
    """Of a network that was finished."""
    before = stage.settings(settings)
    how = f"{stage.name}: from step {before.steps:,} on to {after:,}"
    if builds_on_others(stage, settings):
        return f"{how}; it began with networks that are now trained further, {so_it_is_not(after)}"
    if before.decay:
        rate = learning_rate(before.model_copy(update={"steps": after}), before.steps)
        return (
            f"{how}; its learning rate had fallen to 0 and rises to {rate:.2g} again, {so_it_is_not(after)} "
            "(with decay=0 it is)"
        )
    return f"{how}, to the bit as if it had been so long from the start"


def under_way(stage: Stage, settings: Settings, reached: int, after: int, others_further: bool) -> str:
    """Of a network between its first and its last step."""
    before = stage.settings(settings)
    how = f"{stage.name}: from step {reached:,} on to {after:,} instead of {before.steps:,}"
    if after == reached:
        how = f"{stage.name}: ends at step {reached:,}, where it is, instead of {before.steps:,}"
    if others_further and builds_on_others(stage, settings):
        return f"{how}; it began with networks that are now trained further, {so_it_is_not(after)}"
    if not before.decay:
        return f"{how}, to the bit as if it had been planned so from the start"
    if after == reached:
        return f"{how}; its learning rate has not fallen to 0, {so_it_is_not(after)}"
    pace = "faster" if after < before.steps else "more slowly"
    return f"{how}; its learning rate falls {pace} from here, {so_it_is_not(after)}"


def so_it_is_not(steps: int) -> str:
    return f"so it is not what a run of {steps:,} steps from the start would have become"


def builds_on_others(stage: Stage, settings: Settings) -> bool:
    """Whether its training depends on networks trained before it: its first weights, its labels or its terms."""
    starts = stage.role == "classifier" and stage.settings(settings).start == "score"
    if stage.warm_start or stage.pseudo_labels or starts:
        return True
    try:
        stage.objective(Context(settings, 0.5, {}))
    except KeyError:  # a term that asks for a network finds none
        return True
    return False
