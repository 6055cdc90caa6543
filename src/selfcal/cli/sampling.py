"""sample and export: what a finished run is for."""

from __future__ import annotations

import shutil
from pathlib import Path

from selfcal.cli.terminal import Options, Whole, app, numbers, out_console
from selfcal.core.errors import SelfcalError


@app.command
def sample(
    run: Path,
    /,
    *,
    classes: str | None = None,
    count: Whole = 64,
    scale: float | None = None,
    sampler: str | None = None,
    steps: Whole | None = None,
    guide: str | None = None,
    option: Options = None,
    seed: Whole = 0,
    out: Path | None = None,
) -> None:
    """Generate images of the wanted classes, and a grid to look at.

    Example: selfcal sample runs/digits --classes 3,5 --count 64 --scale 1.5 --out threes-and-fives.npz

    Parameters
    ----------
    run
        A finished run directory.
    classes
        Class names separated by commas; all of them if left out.
    count
        Images in all, spread evenly over the classes.
    scale
        Strength of the guidance: λ of a classifier (1 if left out), or w of classifier-free guidance (0 if left out).
    sampler
        pc (the paper's), euler, heun, dpm++2m or dpm++2m-sde (the default).
    steps
        Steps of the sampler, instead of its own number.
    guide
        Instead of the method's: unconditional, classifier-only or classifier-only-unconditional.
    option
        An option of the sampler as key=value: snr (pc), churn (heun), eta (dpm++2m-sde).
    seed
        The same seed gives the same images.
    out
        A name ending in .npz, or a folder for PNGs by class; RUN/samples if left out.
    """
    from selfcal.report.pictures import sample_grid
    from selfcal.run import load

    opened = load(run)
    target = out or opened.path / "samples"
    picture = target.with_suffix(".png") if target.suffix == ".npz" else target / "grid.png"
    check_free(target, ours=out is None)
    made = opened.sample(
        classes=None if classes is None else opened.classes_named(classes),
        count=count,
        scale=scale,
        sampler=sampler,
        steps=steps,
        guide=guide,
        seed=seed,
        show_progress=True,
        **numbers(option),
    )
    if out is None:
        shutil.rmtree(target, ignore_errors=True)  # the run's own folder: the newest samples replace the last
    made.save(target)
    shown = ""
    if made.x.ndim == 4:
        sample_grid(made).save(picture)
        shown = f", a grid in {picture}"
    out_console.print(f"{len(made)} samples in {target}{shown}", soft_wrap=True, highlight=False)


@app.command
def export(run: Path, /, *, out: Path) -> None:
    """Write a finished run as a diffusers pipeline that loads without selfcal.

    Example: selfcal export runs/adopted --out pipeline/

    Parameters
    ----------
    run
        A finished run directory.
    out
        The folder to make. In Python: DiffusionPipeline.from_pretrained(folder, trust_remote_code=True), then
        pipe(class_labels=[3, 5], guidance_scale=2.0).
    """
    from selfcal.interop.export import export as write_pipeline
    from selfcal.run import load

    write_pipeline(load(run), out)
    out_console.print(
        f"{out} is written; in Python: DiffusionPipeline.from_pretrained({str(out)!r}, trust_remote_code=True)",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def check_free(target: Path, ours: bool) -> None:
    """Before the work: can the samples be written there without mixing with other files?"""
    if target.suffix == ".npz" and target.is_dir():
        raise SelfcalError(f"{target} is a folder; give --out another name")
    if target.suffix != ".npz" and not ours and target.is_dir() and any(target.iterdir()):
        raise SelfcalError(f"the folder {target} is not empty; give --out another name")
    for parent in [target, *target.parents] if target.suffix != ".npz" else target.parents:
        if parent.is_file():
            raise SelfcalError(f"{parent} is a file, not a folder; give --out another name")
