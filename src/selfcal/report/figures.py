"""Figures as SVG text, one function each; they read results, never runs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selfcal.core.escapes import figure as in_figure
from selfcal.report.columns import COLUMNS, Column

COLOURS = {"cg": "#8a8f98", "cg-sc-all": "#c2410c"}
OTHERS = ["#2563eb", "#059669", "#7c3aed", "#b45309", "#0e7490", "#be185d"]


def colour(method: str, position: int = 0) -> str:
    return COLOURS.get(method, OTHERS[position % len(OTHERS)])


def svg(figure: Figure) -> str:
    """The figure as inline SVG: sharp at any size, no file beside the page."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "selfcal"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters are drawn by who reads the page, in its own fonts
        figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def panel(columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.6 * columns, 3.2), layout="constrained")
    axes = [figure.add_subplot(1, columns, i + 1) for i in range(columns)]
    for a in axes:
        a.spines[["top", "right"]].set_visible(False)
        a.grid(alpha=0.25)
    return figure, axes


def metric_over_scale(results: Iterable[Mapping[str, Any]], column: Column) -> str:
    """A metric against λ, a line per method, the chosen λ marked."""
    results = list(results)
    figure, (axes,) = panel()
    for i, method in enumerate(dict.fromkeys(r["method"] for r in results)):
        curve = [r for r in results if r["method"] == method]
        values = [r[column.key] for r in curve]
        axes.plot([r["scale"] for r in curve], values, "o-", ms=4, color=colour(method, i), label=in_figure(method))
        for best in (r for r in curve if r["chosen"]):  # none, where there was nothing to choose by
            axes.plot(best["scale"], best[column.key], "*", ms=14, color=colour(method, i))
    axes.set_xlabel("guidance scale λ")
    axes.set_ylabel(column.long_title)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return svg(figure)


def guidance_curve(results: Iterable[Mapping[str, Any]]) -> str:
    """Density against coverage, and intra-FID, over λ: what more guidance buys and what it costs."""
    results = list(results)
    figure, (left, right) = panel(2)
    left.plot([r["coverage"] for r in results], [r["density"] for r in results], "o-", ms=4, color=OTHERS[0])
    for best in (r for r in results if r["chosen"]):
        left.plot(best["coverage"], best["density"], "*", ms=14, color=OTHERS[0])
    for r in results:
        left.annotate(f"{r['scale']:g}", (r["coverage"], r["density"]), xytext=(4, 4), textcoords="offset points")
    left.set_xlabel(COLUMNS["coverage"].name)
    left.set_ylabel(COLUMNS["density"].name)
    curve = [r for r in results if r["intra_fid"] is not None]
    scales, distances = [r["scale"] for r in curve], [r["intra_fid"] for r in curve]
    right.plot(scales, distances, "o-", ms=4, color=OTHERS[0], label="reported")
    selection = [r["selection_intra_fid"] for r in curve]
    right.plot(scales, selection, "x:", color=COLOURS["cg"], label="samples λ was chosen on")
    right.set_xlabel("guidance scale λ")
    right.set_ylabel(COLUMNS["intra_fid"].name)
    right.legend(frameon=False)
    return svg(figure)


def guide_over_sigma(guides: Mapping[str, list[Mapping[str, float]]]) -> str:
    """Accuracy and calibration error of each guide against the noise level."""
    figure, (left, right) = panel(2)
    for i, (method, table) in enumerate(guides.items()):
        sigma = [row["sigma"] for row in table]
        left.semilogx(
            sigma, [row["accuracy"] for row in table], "o-", ms=4, color=colour(method, i), label=in_figure(method)
        )
        right.semilogx(
            sigma, [row["ece"] for row in table], "o-", ms=4, color=colour(method, i), label=in_figure(method)
        )
    left.set_ylabel("guide accuracy")
    right.set_ylabel("calibration error (20 bins)")
    for axes in (left, right):
        axes.set_xlabel("noise σ")
        axes.set_ylim(0, 1)
    left.legend(frameon=False)
    return svg(figure)
