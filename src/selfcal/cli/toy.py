"""`selfcal toy`: gradients against the truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfcal.cli.options import (
    Changes,
    FirstSeed,
    Whole,
    names,
)
from selfcal.cli.terminal import app, out_console, say


@Parameter(name="*")
@dataclass(frozen=True)
class ToyTraining:
    """How long the toy's classifiers are trained, and with which settings."""

    steps: Annotated[
        Whole | None, Parameter(help="Training steps of each classifier, instead of the preset's 4000.")
    ] = None
    jem_steps: Annotated[
        Whole | None,
        Parameter(
            help="Training steps of cg-jem, whose Langevin chains are dear; an eighth of the others' if left out."
        ),
    ] = None
    changes: Changes = None


USUAL = ToyTraining()


@app.command
def toy(
    *,
    out: Path = Path("runs/toy"),
    methods: str = "cg,cg-sc-all,cg-dlsm,cg-jem",
    labels: Whole = 60,
    seeds: Whole = 10,
    seed: FirstSeed = 0,
    training: ToyTraining = USUAL,
    jobs: Whole = 2,
) -> None:
    """Compare the gradients of classifiers with the exact ones, on two moons with few labels.

    Writes DIR/report.html, table.md, results.json, fields.png and paths.png; the same command continues.
    Example: selfcal toy --out runs/toy --seeds 10 --labels 60

    Parameters
    ----------
    out
        Folder for the page, the table, the figures and each seed's results.
    methods
        Rows of `selfcal methods` that guide by a classifier, separated by commas.
    labels
        How many of the 2000 points of a seed are labelled.
    seeds
        How many times all is repeated, each time with other points, weights and noise.
    jobs
        Processes side by side, one thread each.
    """
    from selfcal.core.reading import read_record
    from selfcal.experiments.toy.records import Report
    from selfcal.experiments.toy.table import print_table
    from selfcal.experiments.toy.toy import Study
    from selfcal.experiments.toy.toy import toy as run_toy

    t = training
    study = Study(names(methods), labels, seed, seeds, t.steps, t.jem_steps, t.changes or [])
    page = run_toy(out, study, jobs=jobs, show_progress=True)
    print_table(out_console, read_record(out / "results.json", Report))
    say(f"Open {page} in a browser.")
