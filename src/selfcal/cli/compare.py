"""`selfcal compare`: methods × labels × seeds."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from selfcal.cli.options import (
    AS_IT_IS,
    KINDS_OF_LABELS,
    Changes,
    Count,
    Data,
    FirstSeed,
    Preset,
    Reading,
    Steps,
    Vary,
    Whole,
    names,
)
from selfcal.cli.terminal import app, out_console, say

if TYPE_CHECKING:
    from selfcal.experiments.compare import Grid


@app.command
def compare(
    data: Data,
    /,
    *,
    methods: str = "paper",
    labels: Annotated[str, Parameter(help=f"Choices separated by commas, each {KINDS_OF_LABELS}")] = "0.02,0.2,1.0",
    seeds: Whole = 3,
    out: Path,
    jobs: Whole | None = None,
    on: str | None = None,
    needs: str = "",
    steps: Steps = None,
    count: Count | None = None,
    vary: Vary = None,
    scales: str = "wide",
    score_seed: Whole | None = None,
    score: Path | None = None,
    label_free: Annotated[bool, Parameter(negative=())] = False,
    preset: Preset = None,
    seed: FirstSeed = 0,
    changes: Changes = None,
    reading: Reading = AS_IT_IS,
) -> None:
    """The paper's tables and figures over methods × labels × seeds; the same command resumes.

    Example: selfcal compare digits --methods cg,cg-sc-all,cond --labels 0.02,1.0 --seeds 3 --out runs/digits-grid

    Every cell is a run directory; finished ones are skipped, a failed one is recorded and tried again by the
    next command. A command with other methods, labels or seeds adds cells to the same folder.

    Parameters
    ----------
    methods
        Names separated by commas; "paper" for the paper's, "all" for every row of `selfcal methods`.
    seeds
        How many seeds; each chooses other labelled images, first weights and noise.
    out
        The folder to make or continue: table.md, table.csv, table.tex and report.html.
    scales
        The grid that λ is chosen from: wide (1 to 6), far (2 to 9), or paper (0.5 to 2.5).
    score_seed
        Train one score model, with this seed, for all: seeds then differ in labelled images and guides alone.
    score
        A run whose score model all cells take over instead of training one.
    label_free
        Also record in each cell's outcome which λ would be chosen without labels, and what that costs.
    jobs
        Cells at a time; as many as there are cores, or one on a GPU, if left out; on a cluster, as many as fit.
    on
        "ray" or "ray:ADDRESS": hand the cells to that Ray cluster, whose nodes all see OUT (docs/scaling.md).
    needs
        Of each cell on a cluster, for instance cpus=4,gpus=0.5; one CPU if left out.
    """
    from selfcal.experiments.compare import compare as run_comparison

    rows = methods_of(methods)
    options: dict[str, Any] = {
        "seed": seed,
        "steps": steps,
        "count": count,
        "scales": scales,
        "vary": vary or [],
        "score_seed": score_seed,
        "score": score,
        "label_free": label_free,
        "preset": preset,
        "jobs": jobs,
        "on": on,
        "needs": needs,
    }
    options |= reading.choices() | {"settings": changes or [], "command": shlex.join(["selfcal", *sys.argv[1:]])}
    print_end(run_comparison(data, rows, names(labels), seeds, out, show_progress=True, **options))


def methods_of(text: str) -> list[str]:
    """Names, or a group's."""
    from selfcal.methods.table import BEYOND, METHODS

    groups = {"all": list(METHODS), "paper": [m for m in METHODS if m not in BEYOND]}
    return groups.get(text, names(text))


def print_end(grid: Grid) -> None:
    """The tables, and which cells have no numbers; a script should not go on where one failed."""
    from selfcal.experiments.compare.page import print_comparison, write_page

    page = write_page(grid.out)
    print_comparison(out_console, grid.out)
    say(f"Open {page} in a browser; the tables are beside it.")
    states = {cell: cell.state(grid.out) for cell in grid.cells}
    for cell, state in states.items():
        if state in ("diverged", "failed"):
            say(f"{state}: {cell.name}, see {cell.outcome(grid.out)}")
    if "failed" in states.values():
        sys.exit(3)
