"""The page and tables of a comparison, from compare.json and the outcomes of its cells alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console

from selfcal.core.errors import SelfcalError
from selfcal.core.escapes import html, markdown
from selfcal.core.files import surfaced, write_text
from selfcal.core.reading import as_written, read_arrays
from selfcal.diffusion.pictures import grid, png
from selfcal.experiments import costs
from selfcal.experiments.compare import figures, tables
from selfcal.experiments.compare.alone import alone, in_markdown
from selfcal.experiments.compare.claims import RULE, claims, claims_in_markdown
from selfcal.experiments.compare.grid import Grid
from selfcal.experiments.compare.latex import latex
from selfcal.experiments.compare.notes import notes
from selfcal.experiments.compare.records import AGAIN
from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.tasks import Cell
from selfcal.experiments.compare.variants import base
from selfcal.methods.table import METHODS
from selfcal.report.columns import ALONE, OVER_LABELS, OVER_SCALE
from selfcal.report.page import render
from selfcal.report.pictures import data_uri


def write_page(out: Path) -> Path:
    """table.md, table.csv, table.tex, claims.md, the figures and report.html; returns the page."""
    with as_written(out, "selfcal compare", "remove the outcome (seed-*.json) that is odd and give the command again"):
        texts = texts_of(out)
    for name, text in texts.items():
        with surfaced(f"cannot write {out / name}"):
            write_text(out / name, text)
    return out / "report.html"


def texts_of(out: Path) -> dict[str, str]:
    """What the page and tables say, by the names of their files."""
    comparison, summary = read(out)
    by_themselves = alone(comparison, summary)
    verdicts, drawings, protocol = claims(summary, costs.measured()), draw(summary), notes(comparison, summary)
    texts = {
        "table.md": tables.all_in_markdown(summary, notes(comparison, summary, markdown)) + in_markdown(by_themselves),
        "table.csv": tables.table_csv(summary),
        "table.tex": latex(summary),
        "claims.md": claims_in_markdown(verdicts),
        **{f"{name}.svg": figure for name, figure in drawings.items()},
    }
    texts["report.html"] = render(
        Path(__file__).with_name("comparison.html"),
        title=Path(comparison.protocol.data).stem,
        summary=summary,
        protocol=[with_code(note) for note in protocol],
        claims=verdicts,
        rule=RULE,
        quality={y: tables.quality_html(summary, y) for y in summary.labels},
        calibration=tables.calibration_html(summary),
        labels={y: tables.labels_in_words(summary, y) for y in summary.labels},
        figures=drawings,
        pictures=pictures(comparison, summary),
        costs=cost_table(summary),
        alone=by_themselves,
        alone_heads=[column.title for column in ALONE],
    )
    return texts


def read(out: Path) -> tuple[Grid, Summary]:
    comparison = Grid.read(out)
    summary = Summary(comparison.outcomes())
    if not summary.results:
        why = next((o["error"] for o in summary.outcomes if o["state"] == "failed"), "no cell is done yet")
        raise SelfcalError(f"{out} has no numbers to show: {why}")
    return comparison, summary


def print_comparison(console: Console, out: Path) -> None:
    """The main tables on the terminal."""
    with as_written(out, "selfcal compare", "remove the outcome (seed-*.json) that is odd and give the command again"):
        tables.print_tables(console, read(out)[1])


def with_code(note: str) -> Markup:
    """A note for the page, what stands between backticks as code."""
    parts = [f"<code>{html(part)}</code>" if i % 2 else html(part) for i, part in enumerate(note.split("`"))]
    return Markup("".join(parts))


def draw(summary: Summary) -> dict[str, str]:
    fewest = [o for o in summary.outcomes if o["labels"] == summary.labels[0]]
    methods = [
        m for m in summary.methods if len(METHODS[base(m)].grid("paper")) > 1 and METHODS[base(m)].guide == "classifier"
    ]
    drawings = {}
    if any(r["intra_fid"] is not None for r in summary.results):
        drawings["over-labels"] = figures.metric_over_labels(summary, OVER_LABELS, summary.methods)
    if any(o.get("selection") for o in fewest) and methods:
        drawings["over-scale"] = figures.curves_over_scale(fewest, OVER_SCALE, methods)
    return drawings


def cost_table(summary: Summary) -> list[dict[str, Any]]:
    """Relative cost of a step of the network that is the method's own, and minutes of training in this comparison."""
    step_costs, rows = costs.measured(), []
    for method in summary.methods:
        seconds = [o["seconds"]["training"] for o in summary.outcomes if o["method"] == method and "seconds" in o]
        steps = [v for key, v in step_costs.items() if key.startswith(f"{method} · ") and not key.endswith(" · score")]
        minutes = sum(seconds) / len(seconds) / 60 if seconds else None
        rows.append({"method": method, "step": " + ".join(f"{v:.1f}" for v in steps) or "–", "minutes": minutes})
    return rows


def pictures(comparison: Grid, summary: Summary) -> dict[str, Any]:
    """Real examples, and samples of the first seed by method and labels: image URIs, or drawings of points."""
    seed = summary.seeds[0]
    samples = {
        method: {y: picture(Cell(method, y, seed).pictures(comparison.out)) for y in summary.labels}
        for method in summary.methods
    }
    return {"seed": seed, "real": picture(comparison.out / "data.npz"), "samples": samples}


def picture(file: Path) -> dict[str, str] | None:
    if not file.exists():
        return None
    arrays = read_arrays(file, ("images", "x", "y"))
    with as_written(file, "selfcal compare", AGAIN):
        if "images" in arrays:
            return {"uri": data_uri(png(grid(arrays["images"], enlarge=1, gap=1)))}
        return {"svg": figures.scatter(arrays["x"], arrays["y"])}
