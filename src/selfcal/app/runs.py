"""The runs that the page shows, opened and checked before anything is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from selfcal.core.errors import SelfcalError, look_up
from selfcal.run import Run, load


def opened(paths: Sequence[Path]) -> dict[str, Run]:
    """By what the page calls them: the last part of their paths where that tells them apart."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise SelfcalError("a run is named twice; name each once")
    short = [path.resolve().name for path in paths]
    names = [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
    return {name: checked(load(path)) for name, path in zip(names, paths, strict=True)}


def checked(run: Run) -> Run:
    """One that can be drawn from, its weights read: what is wrong with it is said now, not after a click."""
    if len(run.shape) != 3:
        raise SelfcalError(f"{run.path} holds points shaped {run.shape}; the app shows images")
    run.check_begun()
    _ = run.networks
    return run


def found(runs: Mapping[str, Run], name: str | None) -> Run:
    """The run of that name; names come from a browser."""
    return look_up("run", str(name), runs)


def has_guide(run: Run) -> bool:
    return "classifier" in run.networks


def needed_guide(run: Run) -> Run:
    """The run, if it has a classifier to ask."""
    if not has_guide(run):
        raise SelfcalError(f"{run.method.name} trains no classifier, so that {run.path} has no guide to ask")
    return run
