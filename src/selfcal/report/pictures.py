"""Grids of images, and pictures as data URIs for pages that open offline."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from selfcal.diffusion.generator import Samples

RED = (214, 40, 40)


def grid(images: np.ndarray, enlarge: int = 4, gap: int = 3, marked: np.ndarray | None = None) -> Image.Image:
    """(rows, columns, C, H, W) in [−1, 1] -> one picture, pixels enlarged without smoothing.

    marked (rows, columns): images that get a red frame.
    """
    rows, columns, _, height, width = images.shape
    pixels = ((np.clip(images, -1, 1) + 1) * 127.5).round().astype(np.uint8)
    pixels = pixels.repeat(enlarge, -1).repeat(enlarge, -2)
    height, width = height * enlarge + gap, width * enlarge + gap
    canvas = np.full((rows * height + gap, columns * width + gap, 3), 255, dtype=np.uint8)
    for r in range(rows):
        for c in range(columns):
            top, left = gap + r * height, gap + c * width
            if marked is not None and marked[r, c]:
                canvas[top - gap : top + height, left - gap : left + width] = RED
            canvas[top : top + height - gap, left : left + width - gap] = pixels[r, c].transpose(1, 2, 0)
    return Image.fromarray(canvas)


def first_of_each_class(x: np.ndarray, y: np.ndarray, count: int = 10) -> np.ndarray:
    """(K, count, C, H, W): not picked, the first ones; blank where a class has fewer."""
    rows = []
    for c in np.unique(y):
        mine = x[y == c][:count]
        blank = np.full((count - len(mine), *x.shape[1:]), -1, dtype=x.dtype)
        rows.append(np.concatenate([mine, blank]))
    return np.stack(rows)


def sample_grid(samples: Samples, most: int = 16) -> Image.Image:
    """One row per class, at most `most` columns."""
    rows = [samples.x[samples.y == c][:most] for c in samples.y.unique()]
    longest = max(len(r) for r in rows)
    blank = samples.x.new_ones((len(rows), longest, *samples.x.shape[1:]))
    for i, row in enumerate(rows):
        blank[i, : len(row)] = row
    enlarge = max(1, 64 // samples.x.shape[-1])
    return grid(blank.numpy(), enlarge=enlarge)


def data_uri(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
