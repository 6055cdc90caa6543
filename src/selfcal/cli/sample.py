"""`selfcal sample`: images of the wanted classes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from selfcal.cli.options import USUAL, FinishedRun, Sampling, Whole
from selfcal.cli.terminal import app, say
from selfcal.core.errors import SelfcalError

if TYPE_CHECKING:
    from selfcal.diffusion.samples import Samples


@app.command
def sample(
    run: FinishedRun,
    /,
    *,
    classes: str | None = None,
    count: Whole = 64,
    scale: float | None = None,
    sampling: Sampling = USUAL,
    seed: Whole = 0,
    out: Path | None = None,
) -> None:
    """Generate images of the wanted classes, and a grid to look at.

    Example: selfcal sample runs/digits --classes 3,5 --count 64 --scale 1.5 --out threes-and-fives.npz

    Parameters
    ----------
    classes
        Class names separated by commas; all of them if left out.
    count
        Images in all, spread evenly over the classes.
    scale
        Strength of the guidance: λ of a classifier (1 if left out), or w of classifier-free guidance (0 if left out).
    seed
        The same seed gives the same images.
    out
        A name ending in .npz, or a folder for PNGs by class; RUN/samples if left out.
    """
    from selfcal.run import load

    the_run, choices = load(run), sampling.choices()
    target = out or the_run.path / "samples"
    check_free(target, ours=out is None)
    names = None if classes is None else the_run.classes_named(classes)
    samples = the_run.sample(names, count, scale, seed=seed, show_progress=True, **choices)
    if out is None:
        shutil.rmtree(target, ignore_errors=True)  # the run's own folder: the newest samples replace the last
    samples.save(target)
    say(f"{len(samples)} samples in {target}{write_grid(samples, target)}")


def write_grid(samples: Samples, target: Path) -> str:
    """A picture beside the samples, and where it is, in words; points have none."""
    from selfcal.core.files import write_bytes
    from selfcal.report.pictures import png, sample_grid

    if samples.x.ndim != 4:
        return ""
    file = target.with_suffix(".png") if target.suffix == ".npz" else target / "grid.png"
    write_bytes(file, png(sample_grid(samples.x.numpy(), samples.y.numpy())))
    return f", a grid in {file}"


def check_free(target: Path, ours: bool) -> None:
    """Before the work: can the samples be written there without mixing with other files?"""
    if target.suffix == ".npz" and target.is_dir():
        raise SelfcalError(f"{target} is a folder; give --out another name")
    if target.suffix != ".npz" and not ours and target.is_dir() and any(target.iterdir()):
        raise SelfcalError(f"the folder {target} is not empty; give --out another name")
    for parent in [target, *target.parents] if target.suffix != ".npz" else target.parents:
        if parent.is_file():
            raise SelfcalError(f"{parent} is a file, not a folder; give --out another name")
