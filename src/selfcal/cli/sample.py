"""`selfcal sample`: images of the wanted classes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from selfcal.cli.options import USUAL, Sampling, TrainedRun, Whole, number
from selfcal.cli.terminal import all_or_nothing, app, say, say_unfinished

if TYPE_CHECKING:
    from selfcal.diffusion.sample_files import Passing
    from selfcal.diffusion.samples import Drawing
    from selfcal.run import Run

TIMES_SMALLER = 20  # than a byte for each number, compressed: hardly any images are


@app.command
def sample(
    run: TrainedRun,
    /,
    *,
    classes: str | None = None,
    count: Whole = 64,
    scale: str = "auto",
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
        Strength of the guidance, λ or w; auto: as the last `selfcal evaluate` chose, before one the method's usual.
    seed
        The same seed gives the same images.
    out
        x.npz (numbers), x.zip (PNGs by class), x.png (one picture of all), or a folder; RUN/samples/set-… if left out.
    """
    from selfcal.run import load

    the_run = load(run, together=True)
    if the_run.team.is_main:
        check_free(the_run, out, count)
    named = None if classes is None else the_run.classes_named(classes)
    the_run.check_classes(named)
    the_run.check_begun(sampling.guide)
    choices = sampling.choices() | {"scale": wanted_scale(the_run, scale, sampling.guide), "seed": seed}
    write_while_drawing(the_run, the_run.draw(named, count, show_progress=True, **choices), out)


def check_free(run: Run, out: Path | None, count: int) -> None:
    """Before the work: nothing may be there, no link of a run's may lead elsewhere, and there must be room for it."""
    from selfcal.core.bounds import check_disk
    from selfcal.core.files import check_inside
    from selfcal.diffusion.sample_files import check_target, next_folder

    target = out or next_folder(run.path / "samples")
    check_target(target, is_image=len(run.shape) == 3)
    if within := limits(run, target):
        check_inside(target, within)
    least = count * math.prod(run.shape) / TIMES_SMALLER
    check_disk(least, target.parent, f"{count:,} samples", "a smaller --count, or an --out on another disk, may fit")


def write_while_drawing(run: Run, drawing: Drawing, out: Path | None) -> None:
    """Of several processes all draw, and the main one writes."""
    from selfcal.diffusion.sample_files import next_folder, write, write_next

    if not run.team.is_main:
        for _ in drawing.parts():
            pass
        return
    with all_or_nothing(out or next_folder(run.path / "samples")):
        if out is None:
            written, target = write_next(drawing, run.path)
        else:
            written, target = write(drawing, out, limits(run, out), new=True), out
        say_unfinished(run)
        say(f"{len(drawing)} samples in {target}{write_grid(written, target)}")


def limits(run: Run, target: Path) -> Path | None:
    """The folder out of which no link may lead: the run, for what is written into it. Other links are the user's."""
    inside = os.path.abspath(target).startswith(os.path.join(os.path.abspath(run.path), ""))
    return run.path if inside else None


def wanted_scale(run: Run, text: str, guide: str | None) -> float | None:
    """The number that was typed; or what `auto` comes to, and that is said."""
    if text != "auto":
        return number(text, "--scale (a number, or auto)")
    if guide is not None or run.method.guide == "conditional":
        return None
    scale, by = run.recommended_scale()
    name = "λ" if run.method.guide == "classifier" else "w"
    if by is None:
        say(f"{name} = {scale:g}, the method's usual one; selfcal evaluate {run.path} chooses one for this run")
    else:
        say(f"{name} = {scale:g}, chosen by selfcal evaluate ({by})")
    return scale


def write_grid(written: Passing, target: Path) -> str:
    """Where the picture of the samples is, in words; beside an .npz it is made, unless something is there already."""
    from selfcal.core.files import surfaced, write_bytes
    from selfcal.diffusion.sample_files import GRID, ending

    kind, beside = ending(target), target.with_suffix(".png")
    if kind in (".png", ".zip") or not written.first:
        return ""
    if kind == "":
        return f", a grid in {target / GRID}"
    with surfaced(f"cannot write {beside}"):
        try:
            write_bytes(beside, written.picture(), new=True)
        except FileExistsError:
            return f"; {beside} is there already, so no grid was made"
    return f", a grid in {beside}"
