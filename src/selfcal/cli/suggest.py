"""`selfcal suggest`: which images to label next, as a table to fill in."""

from __future__ import annotations

from pathlib import Path

from selfcal.cli.options import TrainedRun, Whole
from selfcal.cli.terminal import all_or_nothing, app, say, say_unfinished
from selfcal.core.errors import SelfcalError


@app.command
def suggest(run: TrainedRun, /, *, count: Whole = 20, out: Path, seed: Whole = 0) -> None:
    """Which images to label next: those that stand for many others of which the guide is unsure.

    Example: selfcal suggest runs/digits --count 20 --out labels.csv

    `selfcal app` shows them and takes labels by click.

    Parameters
    ----------
    count
        Images to suggest.
    out
        The table to write, a CSV: the suggested files, whose labels are for you to fill in, then the labels known so
        far. `selfcal train --labels` takes it; rows without a label are left out.
    seed
        Of a large pile, chooses the images that are looked at.
    """
    from selfcal.core.files import make_folder, surfaced, write_text
    from selfcal.data.label_files import as_table, is_label_file
    from selfcal.run import load

    if not is_label_file(out):
        raise SelfcalError(f"{out}: a table of labels is written; give --out a name that ends in .csv")
    if out.exists():
        raise SelfcalError(f"{out} exists already and is not written over; give --out another name, or remove it")
    the_run = load(run)
    say_unfinished(the_run)
    names = the_run.suggest(count, seed)
    with all_or_nothing(out), surfaced(f"cannot write {out}"):
        make_folder(out.parent, within=out.parent)
        write_text(out, as_table([*((name, "") for name in names), *the_run.labels_seen()]), new=True)
    say(f"{len(names)} images to label are in {out}: fill in their labels, then selfcal train … --labels {out}")
