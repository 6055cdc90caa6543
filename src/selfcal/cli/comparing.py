"""methods, demo, compare, toy and report: one method beside another."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from selfcal.cli.options import (
    KINDS_OF_LABELS,
    Changes,
    Count,
    Data,
    FirstSeed,
    Preset,
    Seed,
    Steps,
    Whole,
    names,
)
from selfcal.cli.terminal import app, out_console, say
from selfcal.core.errors import SelfcalError

if TYPE_CHECKING:
    from selfcal.experiments.compare import Grid


@app.command
def methods() -> None:
    """Print the method table: networks, terms and weights, data each term sees, guidance, cost of a step.

    Example: selfcal methods
    """
    from selfcal.core.settings import Settings
    from selfcal.experiments import costs
    from selfcal.methods.stage import Context
    from selfcal.methods.table import METHODS

    step_costs = costs.measured()
    table = Table("method", "network", "loss: weight·term(data it sees)", "guides by", box=None, padding=(0, 1))
    table.add_column("step", justify="right")
    table.columns[2].overflow = "fold"
    for row in METHODS.values():
        for i, stage in enumerate(row.stages(Settings())):
            terms = stage.terms(Context.typical())
            loss = " + ".join(f"{t.weight:g}·{name}({stage.sees(t)})" for name, t in terms.items())
            cost = step_costs.get(costs.key(row.name, stage))
            cells = (stage.name, loss, row.guide if i == 0 else "", "–" if cost is None else f"{cost:.1f}")
            table.add_row(row.name if i == 0 else "", *cells)
    out_console.print(table)
    out_console.print("step: cost of a training step in plain cross-entropy steps, as measured by make bench")


@app.command
def demo(*, out: Path = Path("runs/demo"), seed: Seed = 0, steps: Steps = None, count: Count = 1800) -> None:
    """Show the paper's claim on digits with 2 % labels, in minutes.

    Trains, samples and evaluates CG and CG-SC-all, and writes DIR/report.html and DIR/results.json.
    Example: selfcal demo --out runs/demo

    Parameters
    ----------
    out
        Folder for the page, the results and the two runs; the same command continues an interrupted one.
    """
    from selfcal.core.files import read_json
    from selfcal.experiments.demo.demo import demo as run_demo
    from selfcal.report.tables import print_results

    page = run_demo(out, seed=seed, steps=steps, count=count, show_progress=True)
    results = read_json(out / "results.json")
    print_results(out_console, [r for r in results if r["chosen"]], "at the chosen λ")
    say(f"Open {page} in a browser.")


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
    steps: Steps = None,
    count: Count | None = None,
    preset: Preset = None,
    seed: FirstSeed = 0,
    changes: Changes = None,
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
    jobs
        Cells at a time; as many as there are cores, or one on a GPU, if left out.
    """
    from selfcal.experiments.compare import compare as run_comparison

    rows = methods_of(methods)
    options: dict[str, Any] = {"seed": seed, "steps": steps, "count": count, "preset": preset, "jobs": jobs}
    options |= {"settings": changes or [], "command": shlex.join(["selfcal", *sys.argv[1:]])}
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
    from selfcal.core.files import read_json
    from selfcal.experiments.toy.table import print_table
    from selfcal.experiments.toy.toy import Study
    from selfcal.experiments.toy.toy import toy as run_toy

    t = training
    study = Study(names(methods), labels, seed, seeds, t.steps, t.jem_steps, t.changes or [])
    page = run_toy(out, study, jobs=jobs, show_progress=True)
    print_table(out_console, read_json(out / "results.json"))
    say(f"Open {page} in a browser.")


@app.command
def report(folder: Path, /) -> None:
    """Make the page and tables of a comparison, a toy or a demo again, from its results files alone.

    Example: selfcal report runs/digits-grid

    Parameters
    ----------
    folder
        What `selfcal compare`, `selfcal toy` or `selfcal demo` made.
    """
    from selfcal.experiments import PAGES

    if not folder.is_dir():
        raise SelfcalError(f"the folder {folder} does not exist")
    for mark, write in PAGES.items():
        if (folder / mark).is_file():
            say(f"Open {write(folder)} in a browser.")
            return
    raise SelfcalError(f"{folder} holds no results: none of {', '.join(PAGES)} is there")
