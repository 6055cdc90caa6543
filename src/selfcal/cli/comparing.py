"""methods, demo, compare, toy and report: one method beside another."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from rich.table import Table

from selfcal.cli.terminal import Changes, Whole, app, out_console
from selfcal.core.errors import SelfcalError


@app.command
def methods() -> None:
    """Print the method table: networks, terms and weights, data each term sees, guidance, cost of a step.

    Example: selfcal methods
    """
    from selfcal.core.settings import Settings
    from selfcal.experiments import costs
    from selfcal.methods.stage import Context
    from selfcal.methods.table import METHODS

    measured = costs.measured()
    table = Table("method", "network", "loss: weight·term(data it sees)", "guides by", box=None, padding=(0, 1))
    table.add_column("step", justify="right")
    table.columns[2].overflow = "fold"
    for row in METHODS.values():
        for i, stage in enumerate(row.stages(Settings())):
            terms = stage.terms(Context.typical())
            loss = " + ".join(f"{t.weight:g}·{name}({t.sees})" for name, t in terms.items())
            cost = measured.get(costs.key(row.name, stage))
            cells = (stage.name, loss, row.guide if i == 0 else "", "–" if cost is None else f"{cost:.1f}")
            table.add_row(row.name if i == 0 else "", *cells)
    out_console.print(table)
    out_console.print("step: cost of a training step in plain cross-entropy steps, as measured by make bench")


@app.command
def demo(*, out: Path = Path("runs/demo"), seed: Whole = 0, steps: Whole | None = None, count: Whole = 1800) -> None:
    """Show the paper's claim on digits with 2 % labels, in minutes.

    Trains, samples and evaluates CG and CG-SC-all, and writes DIR/report.html and DIR/results.json.
    Example: selfcal demo --out runs/demo

    Parameters
    ----------
    out
        Folder for the page, the results and the two runs; the same command continues an interrupted one.
    seed
        Chooses the labelled images, the first weights and all noise.
    steps
        Training steps of each network, instead of the preset's (fewer are quicker and worse).
    count
        Samples per guidance scale.
    """
    from selfcal.experiments.demo.demo import demo as run_demo
    from selfcal.report.tables import print_results

    page = run_demo(out, seed=seed, steps=steps, count=count, show_progress=True)
    results = json.loads((out / "results.json").read_text("utf-8"))
    print_results(out_console, [r for r in results if r["chosen"]], "at the chosen λ")
    out_console.print(f"Open {page} in a browser.", soft_wrap=True)


@app.command
def compare(
    data: str,
    /,
    *,
    methods: str = "paper",
    labels: str = "0.02,0.2,1.0",
    seeds: Whole = 3,
    out: Path,
    jobs: Whole | None = None,
    steps: Whole | None = None,
    count: Whole | None = None,
    preset: str | None = None,
    seed: Whole = 0,
    set: Changes = None,
) -> None:
    """The paper's tables and figures over methods × labels × seeds; the same command resumes.

    Example: selfcal compare digits --methods cg,cg-sc-all,cond --labels 0.02,1.0 --seeds 3 --out runs/digits-grid

    Every cell is a run directory; finished ones are skipped, a failed one is recorded and tried again by the
    next command. A command with other methods, labels or seeds adds cells to the same folder.

    Parameters
    ----------
    data
        As for `selfcal train`.
    methods
        Names separated by commas; "paper" for the paper's, "all" for every row of `selfcal methods`.
    labels
        Choices of labels separated by commas, each as for `selfcal train`.
    seeds
        How many seeds; each chooses other labelled images, first weights and noise.
    out
        The folder to make or continue: table.md, table.csv, table.tex and report.html.
    jobs
        Cells at a time; as many as there are cores, or one on a GPU, if left out.
    steps
        Training steps of each network, instead of the preset's.
    count
        Samples per guidance scale.
    preset
        Settings to start from; by default the one that fits the data.
    seed
        The first seed.
    set
        Any other setting as key=value, for instance --set terms.sc_weight=10; may be repeated.
    """
    from selfcal.experiments.compare import compare as run_comparison
    from selfcal.experiments.compare.page import print_comparison, write_comparison
    from selfcal.methods.table import BEYOND, METHODS

    sets = {"all": list(METHODS), "paper": [m for m in METHODS if m not in BEYOND]}
    grid = run_comparison(
        data,
        sets.get(methods, [m.strip() for m in methods.split(",") if m.strip()]),
        [y.strip() for y in labels.split(",") if y.strip()],
        seeds,
        out,
        seed=seed,
        steps=steps,
        count=count,
        preset=preset,
        settings=set or [],
        jobs=jobs,
        command=shlex.join(["selfcal", *sys.argv[1:]]),
        show_progress=True,
    )
    page = write_comparison(grid.out)
    print_comparison(out_console, grid.out)
    out_console.print(f"Open {page} in a browser; the tables are beside it.", soft_wrap=True, highlight=False)
    states = {cell: cell.state(grid.out) for cell in grid.cells}
    for cell, state in states.items():
        if state in ("diverged", "failed"):
            out_console.print(f"{state}: {cell.name}, see {cell.outcome(grid.out)}", soft_wrap=True, highlight=False)
    if "failed" in states.values():
        sys.exit(3)


@app.command
def toy(
    *,
    out: Path = Path("runs/toy"),
    methods: str = "cg,cg-sc-all,cg-dlsm,cg-jem",
    labels: Whole = 60,
    seeds: Whole = 10,
    seed: Whole = 0,
    steps: Whole | None = None,
    jem_steps: Whole | None = None,
    jobs: Whole = 2,
    set: Changes = None,
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
    seed
        The first seed.
    steps
        Training steps of each classifier, instead of the preset's 4000.
    jem_steps
        Training steps of cg-jem, whose Langevin chains are dear; an eighth of the others' if left out.
    jobs
        Processes side by side, one thread each.
    set
        Any other setting as key=value, for instance --set terms.sc_weight=10; may be repeated.
    """
    from selfcal.experiments.toy.table import print_table
    from selfcal.experiments.toy.toy import toy as run_toy

    page = run_toy(
        out,
        rivals=[m.strip() for m in methods.split(",") if m.strip()],
        labels=labels,
        seed=seed,
        seeds=seeds,
        steps=steps,
        jem_steps=jem_steps,
        settings=set or [],
        jobs=jobs,
        show_progress=True,
    )
    print_table(out_console, json.loads((out / "results.json").read_text("utf-8")))
    out_console.print(f"Open {page} in a browser.", soft_wrap=True)


@app.command
def report(folder: Path, /) -> None:
    """Make the page and tables of a comparison, a toy or a demo again, from its results files alone.

    Example: selfcal report runs/digits-grid

    Parameters
    ----------
    folder
        What `selfcal compare`, `selfcal toy` or `selfcal demo` made.
    """
    from selfcal.report import PAGES

    if not folder.is_dir():
        raise SelfcalError(f"the folder {folder} does not exist")
    for mark, write in PAGES.items():
        if (folder / mark).is_file():
            out_console.print(f"Open {write(folder)} in a browser.", soft_wrap=True, highlight=False)
            return
    raise SelfcalError(f"{folder} holds no results: none of {', '.join(PAGES)} is there")
