"""`selfcal export`: a run as a diffusers pipeline."""

from __future__ import annotations

from pathlib import Path

from selfcal.cli.options import FinishedRun
from selfcal.cli.terminal import all_or_nothing, app, say


@app.command
def export(run: FinishedRun, /, *, out: Path) -> None:
    """Write a finished run as a diffusers pipeline that loads without selfcal.

    Example: selfcal export runs/adopted --out pipeline/

    Parameters
    ----------
    out
        The folder to make. In Python: DiffusionPipeline.from_pretrained(folder, trust_remote_code=True), then
        pipe(class_labels=[3, 5], guidance_scale=2.0).
    """
    from selfcal.interop.export import export as write_pipeline
    from selfcal.interop.export import missing
    from selfcal.run import load

    the_run = load(run)
    with all_or_nothing(out):
        write_pipeline(the_run, out)
    if words := missing(the_run):
        say(words)
    say(f"{out} is written; in Python: DiffusionPipeline.from_pretrained({str(out)!r}, trust_remote_code=True)")
