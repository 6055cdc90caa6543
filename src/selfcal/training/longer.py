"""A finished run made longer: what may change then, and what that means for the networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import NETWORKS, Settings
from selfcal.methods.stage import Context, Stage
from selfcal.training.directory import RunDirectory, unfinished_in_words
from selfcal.training.learning_rate import learning_rate


def longer(there: RunDirectory, config: Mapping[str, Any], differing: Sequence[str]) -> dict[str, int]:
    """The new steps by role where `config` asks for more of them and for nothing else; empty where it does not."""
    if not differing or not {*differing} <= {f"settings.{role}.steps" for role in NETWORKS}:
        return {}
    wanted, roles = Settings.model_validate(config["settings"]), {stage.role for stage in there.stages}
    before = {role: getattr(there.settings, role).steps for role in NETWORKS if role in roles}
    after = {role: getattr(wanted, role).steps for role in before}
    changed = {role for role in before if before[role] != after[role]}
    if not changed or not all(after[role] > before[role] and says_steps(config, role) for role in changed):
        return {}
    check_finished(there)
    return after


def says_steps(config: Mapping[str, Any], role: str) -> bool:
    """Whether the user asked for a length, or only a preset did."""
    said = config["asked"]
    return said["steps"] is not None or said["minutes"] is not None or f"{role}.steps" in said["settings"]


def check_finished(run: RunDirectory) -> None:
    if unfinished := run.unfinished:
        minutes = (run.config.get("asked") or {}).get("minutes")
        again = f"--minutes {minutes:g}" if minutes else "the steps it has"
        raise SelfcalError(
            f"{run.path} is not finished ({unfinished_in_words(unfinished)}); finish it with {again}, "
            "then make it longer"
        )


def lengthened(there: RunDirectory, config: dict[str, Any]) -> dict[str, Any]:
    """The config.json of the longer run, which remembers at which steps it had been finished before."""
    before = {stage.role: stage.settings(there.settings).steps for stage in there.stages}
    threads = {"threads": there.config.get("threads", config["threads"])}
    return config | threads | {"lengthened": [*there.config.get("lengthened", []), before]}


def in_words(there: RunDirectory, steps: Mapping[str, int]) -> list[str]:
    """For each network: how long it was, how long it will be, and whether that equals a longer run."""
    sentences = []
    for stage in there.stages:
        before, after = stage.settings(there.settings), steps[stage.role]
        if before.steps == after:
            continue
        new = before.model_copy(update={"steps": after})
        how = f"{stage.name}: from step {before.steps:,} on to {after:,}"
        if builds_on_others(stage, there.settings):
            sentences.append(
                f"{how}; it began with networks that are now trained further, so it is not what a run of "
                f"{after:,} steps from the start would have become"
            )
        elif before.decay:
            rate = learning_rate(new, before.steps)
            sentences.append(
                f"{how}; its learning rate had fallen to 0 and rises to {rate:.2g} again, so it is not what "
                f"a run of {after:,} steps from the start would have become (with decay=0 it is)"
            )
        else:
            sentences.append(f"{how}, to the bit as if it had been so long from the start")
    return sentences


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
