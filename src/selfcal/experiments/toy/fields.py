"""Pictures of the toy: gradient fields in the paper's arrangement, and the paths that guides lead along."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from selfcal.diffusion.pictures import png
from selfcal.experiments.toy.table import title

RED, BLUE, GREY = "#c81e1e", "#1d4ed8", "#c9ced6"
CLASS_COLOURS = (RED, BLUE)
LIMITS = ((-12.5, 12.5), (-8.5, 8.5))
PATHS = 40

Fields = Mapping[str, Mapping[str, np.ndarray]]
"""What every method left in its .npz, "truth" first."""


def bare(axes: Axes) -> Axes:
    axes.set(xlim=LIMITS[0], ylim=LIMITS[1], xticks=[], yticks=[], aspect="equal")
    return axes


def as_png(figure: Figure) -> bytes:
    """Of 64 colours: a third of the size, and arrows in two colours need no more."""
    stream = io.BytesIO()
    figure.savefig(stream, dpi=110)
    with Image.open(stream) as picture:
        return png(picture.convert("RGB").quantize(64))


def dots(axes: Axes, points: np.ndarray, size: float, **look: Any) -> None:
    axes.scatter(points[:, 0], points[:, 1], size, **look)


def draw_fields(fields: Fields) -> bytes:
    """The data, then a column per method: gradients towards the red class above, towards the blue one below."""
    truth, columns = fields["truth"], len(fields)
    figure = Figure(figsize=(2.5 * (columns + 1), 3.9), layout="constrained")
    cells = figure.add_gridspec(2, columns + 1)
    draw_data(bare(figure.add_subplot(cells[:, 0])), truth)
    for c, (method, arrays) in enumerate(fields.items(), start=1):
        for y, colour in enumerate(CLASS_COLOURS):
            axes = bare(figure.add_subplot(cells[y, c]))
            draw_arrows(axes, truth["grid"], arrays["field"][y], colour)
            if y == 0:
                axes.set_title("ground truth" if method == "truth" else title(method), fontsize=11)
    return as_png(figure)


def draw_data(axes: Axes, truth: Mapping[str, np.ndarray]) -> None:
    x, y, y_seen = truth["x"], truth["y"], truth["seen"]
    for k, colour in enumerate(CLASS_COLOURS):
        dots(axes, x[(y == k) & (y_seen < 0)], 1, color=colour, alpha=0.25, linewidths=0)
        dots(axes, x[y_seen == k], 14, color=colour, edgecolors="black", linewidths=0.6)
    axes.set_title(f"data, {(y_seen >= 0).sum()} labelled", fontsize=11)


def draw_arrows(axes: Axes, grid: np.ndarray, field: np.ndarray, colour: str) -> None:
    """Every second point of the grid. Lengths are the square roots of the gradients', all panels alike:
    they span so much that true lengths would leave only a few arrows to see."""
    every_second = (np.round(grid * 2) % 2 == 0).all(-1)
    v = field[every_second]
    v = v / np.sqrt(np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-12))
    axes.quiver(*grid[every_second].T, *v.T, color=colour, angles="xy", scale_units="xy", scale=1.6, width=0.005)


def draw_paths(fields: Fields, shares: Mapping[str, float]) -> bytes:
    """A panel per method: the same noise, led to either class by each guide with the exact score and λ = 1."""
    truth = fields["truth"]
    figure = Figure(figsize=(3.1 * len(fields), 2.6), layout="constrained")
    for c, (method, arrays) in enumerate(fields.items(), start=1):
        axes = bare(figure.add_subplot(1, len(fields), c))
        dots(axes, truth["x"], 1, color=GREY, linewidths=0)
        for i in range(PATHS):
            path, colour = arrays["paths"][:, i], CLASS_COLOURS[i % len(CLASS_COLOURS)]
            axes.plot(*path.T, color=colour, lw=0.5, alpha=0.6)
            axes.plot(*path[-1], "o", ms=3, color=colour)
        name = "ground truth" if method == "truth" else title(method)
        axes.set_title(f"{name}: {shares[method]:.0%} reach their class", fontsize=10)
    return as_png(figure)
