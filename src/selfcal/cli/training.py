"""train and adopt: a run directory, from data or from a pretrained model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from selfcal.cli.terminal import Changes, Whole, app, out_console

if TYPE_CHECKING:
    from selfcal.run import Run


@app.command
def train(
    data: str,
    /,
    *,
    method: str = "cg-sc-all",
    labels: str = "0.02",
    out: Path,
    score: Path | None = None,
    steps: Whole | None = None,
    preset: str | None = None,
    seed: Whole = 0,
    set: Changes = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train what a method needs on DATA; the same command resumes an interrupted run.

    Example: selfcal train digits --method cg-sc-all --labels 0.02 --out runs/digits

    Parameters
    ----------
    data
        moons, digits, cifar10, cifar100, fashion, mnist, an .npz file (arrays x and y), or a folder of images (class
        sub-folders and/or unlabeled/).
    method
        A row of `selfcal methods`.
    labels
        What may be seen: a fraction (0.02), a count (4/class), or a CSV with the columns file,label.
    out
        The run directory to make or continue.
    score
        A finished run whose unconditional score model is used instead of training one.
    steps
        Training steps of each network, instead of the preset's.
    preset
        Settings to start from; by default the one that fits the data.
    seed
        Chooses the labelled images, the first weights and all noise.
    set
        Any other setting as key=value, for instance --set terms.sc_weight=10; may be repeated.
    dry_run
        Only say what it would take: parameters, FLOPs, memory, time on this machine. Writes nothing.
    """
    if dry_run:
        from selfcal.report.plan_table import print_plan
        from selfcal.training.plan import plan

        print_plan(out_console, plan(data, method, labels, seed=seed, steps=steps, preset=preset, settings=set or []))
        return
    from selfcal.training.fit import train as run_training

    run = run_training(
        data,
        method,
        labels,
        out,
        seed=seed,
        steps=steps,
        score=score,
        preset=preset,
        settings=set or [],
        show_progress=True,
    )
    finished(run)


@app.command
def adopt(
    source: Path,
    /,
    *,
    data: str,
    method: str = "cg-sc-all",
    labels: str = "0.02",
    out: Path,
    steps: Whole | None = None,
    preset: str | None = None,
    seed: Whole = 0,
    set: Changes = None,
) -> None:
    """Make a pretrained unconditional model class-conditional: only the guide is trained; the same command resumes.

    Example: selfcal adopt ddpm-digits/ --data digits --labels 4/class --out runs/adopted

    Parameters
    ----------
    source
        A diffusers pipeline's folder (UNet2DModel), or a checkpoint of score_sde_pytorch (.pth or .safetensors).
    data
        Images like those the model was trained on, as for `selfcal train`.
    method
        A row of `selfcal methods` that guides by a classifier.
    labels
        As for `selfcal train`.
    out
        The run directory to make or continue.
    steps
        Training steps of the guide, instead of the preset's.
    preset
        As for `selfcal train`.
    seed
        As for `selfcal train`.
    set
        As for `selfcal train`.
    """
    from selfcal.interop.adopt import adopt as run_adoption

    finished(
        run_adoption(
            source, data, labels, method, out, seed=seed, steps=steps, preset=preset, settings=set or [],
            show_progress=True,
        )
    )  # fmt: skip


def finished(run: Run) -> None:
    """What came of a training, and what to type next."""
    if run.diverged:
        from selfcal.run import divergence_in_words

        out_console.print(f"{run.path} diverged: {divergence_in_words(run.diverged)}", soft_wrap=True, highlight=False)
        sys.exit(3)  # a result, recorded in the run, but nothing a script should go on with
    for stage, labels_given in (run.pseudo_labels or {}).items():
        right = "" if labels_given["right"] is None else f", {labels_given['right']:.1%} of them right"
        out_console.print(
            f"{stage}: {labels_given['kept']} of {labels_given['unlabelled']} unlabelled images got a label{right}",
            highlight=False,
        )
    out_console.print(
        f"{run.path} is finished: {run.method.title}, "
        f"{run.config['labelled']} of {run.config['data']['examples']} training examples labelled.\n"
        f"Next: selfcal sample {run.path} --out samples.npz, or selfcal evaluate {run.path}",
        soft_wrap=True,
        highlight=False,
    )
