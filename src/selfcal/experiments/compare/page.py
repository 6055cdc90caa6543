"""The page and tables of a comparison, from compare.json and the outcomes of its cells alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from rich.console import Console
from rich.table import Table

from selfcal.core.errors import SelfcalError
from selfcal.experiments import costs
from selfcal.experiments.compare import tables
from selfcal.experiments.compare.claims import RULE, claims, claims_in_markdown
from selfcal.experiments.compare.grid import Cell, Grid
from selfcal.experiments.compare.summary import Summary
from selfcal.methods.table import METHODS
from selfcal.report import figures
from selfcal.report.page import render
from selfcal.report.pictures import data_uri, grid
from selfcal.report.plan_table import duration

OVER_LABELS = {"intra_fid": "intra-FID ↓", "intra_density": "intra-density ↑", "intra_coverage": "intra-coverage ↑"}
OVER_SCALE = {"intra_fid": "intra-FID ↓", "fid": "FID ↓", "accuracy": "generation accuracy ↑"}


def write_comparison(out: Path) -> Path:
    """table.md, table.csv, table.tex, claims.md, the figures and report.html; returns the page."""
    comparison, summary = read(out)
    found, drawn, protocol = claims(summary, costs.measured()), draw(summary), in_words(comparison, summary)
    texts = {
        "table.md": tables.all_in_markdown(summary, protocol),
        "table.csv": tables.table_csv(summary),
        "table.tex": tables.latex(summary),
        "claims.md": claims_in_markdown(found),
        **{f"{name}.svg": figure for name, figure in drawn.items()},
    }
    texts["report.html"] = render(
        Path(__file__).with_name("comparison.html"),
        title=Path(comparison.protocol.data).stem,
        summary=summary,
        protocol=[with_code(note) for note in protocol],
        claims=found,
        rule=RULE,
        quality={y: tables.quality_html(summary, y) for y in summary.labels},
        calibration=tables.calibration_html(summary),
        labels={y: tables.labels_in_words(summary, y) for y in summary.labels},
        figures=drawn,
        pictures=pictures(comparison, summary),
        costs=cost_table(summary),
    )
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return out / "report.html"


def read(out: Path) -> tuple[Grid, Summary]:
    comparison = Grid.read(out)
    summary = Summary(comparison.outcomes())
    if not summary.results:
        why = next((o["error"] for o in summary.outcomes if o["state"] == "failed"), "no cell is done yet")
        raise SelfcalError(f"{out} has no numbers to show: {why}")
    return comparison, summary


def in_words(comparison: Grid, summary: Summary) -> list[str]:
    """What every number of the tables means, and how they were made."""
    r, waiting = summary.results[0], len(comparison.cells) - len(summary.outcomes)
    steps = {s: comparison.protocol.settings[s]["steps"] for s in ("score", "classifier", "conditional")}
    spent = sum(i["seconds"] for i in comparison.invocations)
    commands = dict.fromkeys(i["command"] for i in comparison.invocations if i["command"])
    jobs = sorted({i["jobs"] for i in comparison.invocations})
    return [
        *(f"Made by `{command}`" for command in commands),
        f"{len(summary.outcomes)} cells in {duration(spent / 3600)}, {' or '.join(map(str, jobs))} at a time"
        + (f"; {waiting} more are not done yet" if waiting else ""),
        *(f"no numbers: {trouble}" for trouble in troubles(summary)),
        f"{r['reference_examples']} training images; every network is trained for the same number of steps: "
        + ", ".join(f"{name} {n}" for name, n in steps.items())
        + "; the score model of a seed is shared by all methods that use one",
        f"{r['samples']} samples per cell by {r['sampler']} with {r['evaluations']} evaluations; λ is chosen within "
        "the paper's grid by intra-FID on samples that are not reported",
        f"features {r['features']} {r['features_sha256'][:12]}, k = {r['k']}, reference: {r['reference']} images; the "
        "distances compare with each other, not with those of another extractor or number of samples"
        + ("; below 2048 samples they are biased upwards, for all alike" if r["biased"] else ""),
        tables.INTERVAL,
        "bold: best of all; underlined: best of the methods guided by a classifier; computed from the means as "
        "printed, of the methods with all seeds",
        *at_the_edge(summary),
    ]


def troubles(summary: Summary) -> list[str]:
    """Cells that failed or diverged, and why."""
    found = []
    for o in summary.outcomes:
        if o["state"] == "failed":
            found.append(f"{o['method']}, {o['labels']}, seed {o['seed']} failed ({o['error']})")
        elif o.get("diverged"):
            where = f"at step {o['diverged']['step']} of the {o['diverged']['network']} network"
            found.append(f"{o['method']}, {o['labels']}, seed {o['seed']} diverged {where}")
    return found


def at_the_edge(summary: Summary) -> list[str]:
    """Who chose the strongest guidance on offer: more might be better still."""
    found = []
    for y in summary.labels:
        largest = {m: METHODS[m].scales[-1] for m in summary.methods if len(METHODS[m].scales) > 1}
        mine = [m for m in largest if any(r["scale"] == largest[m] for r in summary.of(m, y))]
        if mine:
            found.append(f"{tables.labels_in_words(summary, y)}: the largest λ or w was chosen by {', '.join(mine)}")
    return found


def with_code(note: str) -> Markup:
    """A note for the page, what stands between backticks as code."""
    parts = [f"<code>{escape(part)}</code>" if i % 2 else escape(part) for i, part in enumerate(note.split("`"))]
    return Markup("".join(parts))


def draw(summary: Summary) -> dict[str, str]:
    fewest = [o for o in summary.outcomes if o["labels"] == summary.labels[0]]
    steered = [m for m in summary.methods if len(METHODS[m].scales) > 1 and METHODS[m].guide == "classifier"]
    drawn = {}
    if any(r["intra_fid"] is not None for r in summary.results):
        drawn["over-labels"] = figures.metric_over_labels(summary, OVER_LABELS, summary.methods)
    if any(o.get("selection") for o in fewest) and steered:
        drawn["over-scale"] = figures.curves_over_scale(fewest, OVER_SCALE, steered)
    return drawn


def cost_table(summary: Summary) -> list[dict[str, Any]]:
    """Relative cost of a step of the network that is the method's own, and minutes of training in this comparison."""
    measured, rows = costs.measured(), []
    for method in summary.methods:
        mine = [o["seconds"]["training"] for o in summary.outcomes if o["method"] == method and "seconds" in o]
        of_step = [v for key, v in measured.items() if key.startswith(f"{method} · ") and not key.endswith(" · score")]
        minutes = sum(mine) / len(mine) / 60 if mine else None
        rows.append({"method": method, "step": " + ".join(f"{v:.1f}" for v in of_step) or "–", "minutes": minutes})
    return rows


def pictures(comparison: Grid, summary: Summary) -> dict[str, Any]:
    """Real examples, and samples of the first seed by method and labels: image URIs, or drawings of points."""
    seed = summary.seeds[0]
    made = {
        method: {y: picture(Cell(method, y, seed).pictures(comparison.out)) for y in summary.labels}
        for method in summary.methods
    }
    return {"seed": seed, "real": picture(comparison.out / "data.npz"), "made": made}


def picture(file: Path) -> dict[str, str] | None:
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as archive:
        if "images" in archive:
            return {"uri": data_uri(grid(archive["images"], enlarge=1, gap=1))}
        return {"svg": figures.scatter(archive["x"], archive["y"])}


def print_comparison(console: Console, out: Path) -> None:
    """The main table on the terminal, one for each choice of labels, with as many columns as there is room for."""
    _, summary = read(out)
    for y in summary.labels:
        wide = [terminal_table(summary, y, n) for n in range(len(tables.TERMINAL), 0, -1)]
        unbounded = console.options.update(width=1000)
        fitting = (t for t in wide if console.measure(t, options=unbounded).maximum <= console.width)
        console.print(next(fitting, wide[-1]))
    console.print(tables.INTERVAL, highlight=False)


def terminal_table(summary: Summary, labels: str, columns: int) -> Table:
    metrics = tables.TERMINAL[:columns]
    table = Table(title=tables.labels_in_words(summary, labels), box=None, padding=(0, 1))
    table.add_column("method", no_wrap=True, min_width=max(map(len, summary.methods)))
    for metric in metrics:
        table.add_column(tables.head(metric), justify="right", no_wrap=True)
    # the others' intervals are in table.md: a terminal is narrow
    found = [tables.cells(summary, m, labels, tables.rich_mark, intervals=m == metrics[0]) for m in metrics]
    for method in summary.methods:
        table.add_row(method, *(column[method] for column in found))
    return table
