"""Grids of images, and pictures as data URIs for pages that open offline."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

RED = (214, 40, 40)


def grid(images: np.ndarray, enlarge: int = 4, gap: int = 3, frames: np.ndarray | None = None) -> Image.Image:
    """(rows, columns, C, H, W) in [−1, 1] -> one picture, pixels enlarged without smoothing.

    frames (rows, columns): whether an image gets a red one.
    """
    rows, columns, _, height, width = images.shape
    pixels = ((np.clip(images, -1, 1) + 1) * 127.5).round().astype(np.uint8)
    pixels = pixels.repeat(enlarge, -1).repeat(enlarge, -2)
    height, width = height * enlarge + gap, width * enlarge + gap
    canvas = np.full((rows * height + gap, columns * width + gap, 3), 255, dtype=np.uint8)
    for r in range(rows):
        for c in range(columns):
            top, left = gap + r * height, gap + c * width
            if frames is not None and frames[r, c]:
                canvas[top - gap : top + height, left - gap : left + width] = RED
            canvas[top : top + height - gap, left : left + width - gap] = pixels[r, c].transpose(1, 2, 0)
    return Image.fromarray(canvas)


def first_of_each_class(x: np.ndarray, y: np.ndarray, count: int = 10, blank: float = -1) -> np.ndarray:
    """(K, count, C, H, W): not picked, the first ones; blank where a class has fewer."""
    rows = []
    for c in np.unique(y):
        images = x[y == c][:count]
        rest = np.full((count - len(images), *x.shape[1:]), blank, dtype=x.dtype)
        rows.append(np.concatenate([images, rest]))
    return np.stack(rows)


def sample_grid(x: np.ndarray, y: np.ndarray, most: int = 16) -> Image.Image:
    """One row per class, at most `most` columns."""
    longest = int(np.unique(y, return_counts=True)[1].max())
    images = first_of_each_class(x, y, min(longest, most), blank=1)
    return grid(images, enlarge=max(1, 64 // x.shape[-1]))


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format="PNG", optimize=True)
    return stream.getvalue()


def data_uri(content: bytes) -> str:
    """A PNG for a page that opens offline."""
    return "data:image/png;base64," + base64.b64encode(content).decode()
