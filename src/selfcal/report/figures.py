"""Figures as SVG text, one function each; they read results, never runs."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selfcal.experiments.compare.summary import LOWER_IS_BETTER, Summary
from selfcal.methods.table import METHODS

COLOURS = {"cg": "#8a8f98", "cg-sc-all": "#c2410c"}
OTHERS = ["#2563eb", "#059669", "#7c3aed", "#b45309", "#0e7490", "#be185d"]

LINES = [  # for as many methods as there are; with a marker each, so that no one has to tell colours apart
    "#8a8f98", "#2563eb", "#0e7490", "#7c3aed", "#be185d", "#92400e", "#ea9a3e", "#c2410c",
    "#111827", "#4b5563", "#059669", "#dc2626", "#65a30d",
]  # fmt: skip
MARKERS = "osv^<>DdPXph*"


def line(method: str) -> dict[str, Any]:
    """How a method is drawn among many: the same in every figure."""
    position = list(METHODS).index(method)
    colour = COLOURS.get(method, LINES[position % len(LINES)])
    return {"color": colour, "marker": MARKERS[position % len(MARKERS)], "ms": 5, "lw": 1.4, "label": method}


def colour(method: str, position: int = 0) -> str:
    return COLOURS.get(method, OTHERS[position % len(OTHERS)])


def svg(figure: Figure) -> str:
    """The figure as inline SVG: sharp at any size, no file beside the page."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "selfcal"}):
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


def metric_over_scale(results: Iterable[Mapping[str, Any]], metric: str, label: str) -> str:
    """A metric against λ, a line per method, the chosen λ marked."""
    results = list(results)
    figure, (axes,) = panel()
    for i, method in enumerate(dict.fromkeys(r["method"] for r in results)):
        mine = [r for r in results if r["method"] == method]
        axes.plot(
            [r["scale"] for r in mine],
            [r[metric] for r in mine],
            "o-",
            ms=4,
            color=colour(method, i),
            label=method,
        )
        best = next(r for r in mine if r["chosen"])
        axes.plot(best["scale"], best[metric], "*", ms=14, color=colour(method, i))
    axes.set_xlabel("guidance scale λ")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return svg(figure)


def guidance_curve(results: Iterable[Mapping[str, Any]]) -> str:
    """Density against coverage, and intra-FID, over λ: what more guidance buys and what it costs."""
    results = list(results)
    figure, (left, right) = panel(2)
    best = next(r for r in results if r["chosen"])
    left.plot([r["coverage"] for r in results], [r["density"] for r in results], "o-", ms=4, color=OTHERS[0])
    left.plot(best["coverage"], best["density"], "*", ms=14, color=OTHERS[0])
    for r in results:
        left.annotate(f"{r['scale']:g}", (r["coverage"], r["density"]), xytext=(4, 4), textcoords="offset points")
    left.set_xlabel("coverage")
    left.set_ylabel("density")
    known = [r for r in results if r["intra_fid"] is not None]
    right.plot(
        [r["scale"] for r in known], [r["intra_fid"] for r in known], "o-", ms=4, color=OTHERS[0], label="reported"
    )
    chosen_on = [r["selection_intra_fid"] for r in known]
    right.plot([r["scale"] for r in known], chosen_on, "x:", color=COLOURS["cg"], label="samples λ was chosen on")
    right.set_xlabel("guidance scale λ")
    right.set_ylabel("intra-FID")
    right.legend(frameon=False)
    return svg(figure)


def guide_over_sigma(guides: Mapping[str, list[Mapping[str, float]]]) -> str:
    """Accuracy and calibration error of each guide against the noise level."""
    figure, (left, right) = panel(2)
    for i, (method, table) in enumerate(guides.items()):
        sigma = [row["sigma"] for row in table]
        left.semilogx(sigma, [row["accuracy"] for row in table], "o-", ms=4, color=colour(method, i), label=method)
        right.semilogx(sigma, [row["ece"] for row in table], "o-", ms=4, color=colour(method, i), label=method)
    left.set_ylabel("guide accuracy")
    right.set_ylabel("calibration error (20 bins)")
    for axes in (left, right):
        axes.set_xlabel("noise σ")
        axes.set_ylim(0, 1)
    left.legend(frameon=False)
    return svg(figure)


def metric_over_labels(summary: Summary, metrics: Mapping[str, str], methods: Sequence[str]) -> str:
    """The paper's figure: metrics against the number of labels, a line per method, 95 % intervals as bars."""
    figure, axes = panel(len(metrics))
    for a, metric in zip(axes, metrics, strict=True):
        for i, method in enumerate(methods):
            found = [(summary.labelled[y], e) for y in summary.labels if (e := summary.estimate(method, y, metric))]
            if not found:
                continue
            shift = 1 + 0.03 * (i - len(methods) / 2)  # so that bars at one number of labels can be told apart
            x, y = [n * shift for n, _ in found], [e.mean for _, e in found]
            a.errorbar(x, y, yerr=[e.reach or 0 for _, e in found], elinewidth=0.8, **line(method))
        counts = sorted(summary.labelled.values())
        a.set_xscale("log")
        a.set_xticks(counts, [str(n) for n in counts])
        a.minorticks_off()
    return finished(figure, axes, metrics, "labelled images")


def curves_over_scale(outcomes: Sequence[Mapping[str, Any]], metrics: Mapping[str, str], methods: Sequence[str]) -> str:
    """Metrics against λ on the samples it was chosen on, means over seeds, a line per method."""
    figure, axes = panel(len(metrics))
    for method in methods:
        rows = [row for o in outcomes if o["method"] == method for row in o.get("selection", ())]
        scales = sorted({row["scale"] for row in rows})
        for a, metric in zip(axes, metrics, strict=True):
            known = {s: [r[metric] for r in rows if r["scale"] == s and r[metric] is not None] for s in scales}
            points = [(s, statistics.fmean(values)) for s, values in known.items() if values]
            if points:
                a.plot(*zip(*points, strict=True), **line(method))
    return finished(figure, axes, metrics, "guidance scale λ")


def plain_numbers(value: float, position: float) -> str:
    """ "600" rather than "6 × 10²"."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def finished(figure: Figure, axes: Sequence[Axes], metrics: Mapping[str, str], below: str) -> str:
    """Titles, scales and one legend for a row of panels, a metric each."""
    for a, (metric, title) in zip(axes, metrics.items(), strict=True):
        a.set_xlabel(below)
        a.set_title(title)
        if metric in LOWER_IS_BETTER:
            a.set_yscale("log")
            for axis_labels in (a.yaxis.set_major_formatter, a.yaxis.set_minor_formatter):
                axis_labels(plain_numbers)
            a.tick_params(axis="y", which="minor", labelsize=7)
    lines = {label: line for a in axes for line, label in zip(*a.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=5, frameon=False)
    return svg(figure)


def scatter(x: np.ndarray, y: np.ndarray) -> str:
    """Points by class."""
    figure = Figure(figsize=(2.6, 2.0), layout="constrained")
    axes = figure.add_subplot()
    for c in np.unique(y):
        axes.plot(*x[y == c].T[:2], ".", ms=2, color=LINES[int(c) % len(LINES)])
    axes.set_aspect("equal")
    axes.tick_params(labelsize=7)
    return svg(figure)
