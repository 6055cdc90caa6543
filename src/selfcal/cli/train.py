"""`selfcal train`: a run directory, from data."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from selfcal.cli.options import AS_IT_IS, Changes, Data, Labels, Minutes, Preset, Reading, RunOut, Seed, Steps, Track
from selfcal.cli.terminal import app, out_console, say

if TYPE_CHECKING:
    from selfcal.run import Run


@app.command
def train(
    data: Data,
    /,
    *,
    method: str = "cg-sc-all",
    labels: Labels = None,
    out: RunOut,
    score: Path | None = None,
    steps: Steps = None,
    minutes: Minutes = None,
    preset: Preset = None,
    seed: Seed = 0,
    changes: Changes = None,
    track: Track = None,
    reading: Reading = AS_IT_IS,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train what a method needs on DATA; the same command resumes an interrupted run.

    Example: selfcal train digits --method cg-sc-all --labels 0.02 --out runs/digits

    Parameters
    ----------
    method
        A row of `selfcal methods`.
    score
        A finished run whose unconditional score model is used instead of training one.
    dry_run
        Only say what it would take: parameters, FLOPs, memory, time on this machine. Writes nothing.
    """
    options: dict[str, Any] = {"seed": seed, "steps": steps, "minutes": minutes}
    options |= {"preset": preset, "settings": changes or []}
    options |= reading.choices()
    if dry_run:
        print_what_it_takes(data, method, labels, options)
        return
    from selfcal.run import train as run_training

    print_end(run_training(data, method, labels, out, score=score, track=track, show_progress=True, **options))


def print_what_it_takes(data: str, method: str, labels: str | None, options: dict[str, Any]) -> None:
    from selfcal.cli.plan_table import print_plan
    from selfcal.training.pace import within_minutes
    from selfcal.training.plan import plan
    from selfcal.training.request import Request

    print_plan(out_console, plan(within_minutes(Request(data, method, labels, **options).prepared())))


def print_end(run: Run) -> None:
    """What came of a training, and what to type next."""
    if run.diverged:
        from selfcal.training.directory import divergence_in_words

        say(f"{run.path} diverged: {divergence_in_words(run.diverged)}")
        sys.exit(3)  # a result, recorded in the run, but nothing a script should go on with
    for stage, labels in (run.pseudo_labels or {}).items():
        right = "" if labels["right"] is None else f", {labels['right']:.1%} of them right"
        out_console.print(
            f"{stage}: {labels['kept']} of {labels['unlabelled']} unlabelled images got a label{right}",
        )
    if previews := sorted((run.path / "samples").glob("preview-*.png"), key=lambda p: p.stat().st_mtime):
        say(f"Pictures on the way: {run.path / 'samples'}/preview-*.png, the last of them {previews[-1]}")
    point_to_the_doctor(run)
    say(
        f"{run.path} is finished: {run.method.title}, "
        f"{run.config['labelled']} of {run.config['data']['examples']} training examples labelled.\n"
        f"Next: selfcal sample {run.path} --classes {shlex.quote(run.classes[0])} --out "
        f"{'samples' if len(run.shape) == 3 else 'samples.npz'}, or selfcal evaluate {run.path}"
    )


def point_to_the_doctor(run: Run) -> None:
    """Where a look at the run's files alone finds something odd."""
    from selfcal.evaluation.diagnosis.training_log import looks_off

    if odd := looks_off(run.directory):
        say(f"Something looks off: {'; '.join(odd)}. What follows from it and what to do: selfcal doctor {run.path}")
