"""Figures that only a comparison draws, as SVG text: a line per method, the same in every figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selfcal.core.escapes import figure as in_figure
from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.variants import base
from selfcal.methods.table import METHODS
from selfcal.report.columns import Column
from selfcal.report.figures import COLOURS, panel, svg

LINES = [  # for as many methods as there are; with a marker each, so that no one has to tell colours apart
    "#8a8f98", "#2563eb", "#0e7490", "#7c3aed", "#be185d", "#92400e", "#ea9a3e", "#c2410c",
    "#111827", "#4b5563", "#059669", "#dc2626", "#65a30d",
]  # fmt: skip
MARKERS = "osv^<>DdPXph*"


def line(method: str) -> dict[str, Any]:
    """How a method is drawn among many."""
    position = list(METHODS).index(base(method))
    colour = COLOURS.get(method, LINES[position % len(LINES)])
    return {"color": colour, "marker": MARKERS[position % len(MARKERS)], "ms": 5, "lw": 1.4, "label": in_figure(method)}


def metric_over_labels(summary: Summary, columns: Sequence[Column], methods: Sequence[str]) -> str:
    """The paper's figure: metrics against the number of labels, a line per method, 95 % intervals as bars."""
    figure, axes = panel(len(columns))
    for a, column in zip(axes, columns, strict=True):
        for i, method in enumerate(methods):
            estimates = {summary.labelled[y]: e for y in summary.labels if (e := summary.estimate(method, y, column))}
            if not estimates:
                continue
            shift = 1 + 0.03 * (i - len(methods) / 2)  # so that bars at one number of labels can be told apart
            x, y = [n * shift for n in estimates], [e.mean for e in estimates.values()]
            a.errorbar(x, y, yerr=[e.reach or 0 for e in estimates.values()], elinewidth=0.8, **line(method))
        counts = sorted(summary.labelled.values())
        a.set_xscale("log")
        a.set_xticks(counts, [str(n) for n in counts])
        a.minorticks_off()
    return finish(figure, axes, columns, "labelled images")


def curves_over_scale(outcomes: Sequence[Mapping[str, Any]], columns: Sequence[Column], methods: Sequence[str]) -> str:
    """Metrics against λ on the samples it was chosen on, means over seeds, a line per method."""
    figure, axes = panel(len(columns))
    for method in methods:
        rows = [row for o in outcomes if o["method"] == method for row in o.get("selection", ())]
        scales = sorted({row["scale"] for row in rows})
        for a, column in zip(axes, columns, strict=True):
            values = {s: [v for r in rows if r["scale"] == s and (v := r[column.key]) is not None] for s in scales}
            points = [(s, statistics.fmean(numbers)) for s, numbers in values.items() if numbers]
            if points:
                a.plot(*zip(*points, strict=True), **line(method))
    return finish(figure, axes, columns, "guidance scale λ")


def plain_numbers(value: float, position: float) -> str:
    """ "600" rather than "6 × 10²"."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def finish(figure: Figure, axes: Sequence[Axes], columns: Sequence[Column], below: str) -> str:
    """Titles, scales and one legend for a row of panels, a metric each."""
    for a, column in zip(axes, columns, strict=True):
        a.set_xlabel(below)
        a.set_title(column.long_title)
        if column.lower_is_better:
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
