"""Pictures in pages: which images are shown, and how a page that opens offline holds them."""

from __future__ import annotations

import base64

import numpy as np


def first_of_each_class(x: np.ndarray, y: np.ndarray, count: int = 10, blank: float = -1) -> np.ndarray:
    """(K, count, C, H, W): not picked, the first ones; blank where a class has fewer."""
    rows = []
    for c in np.unique(y):
        images = x[y == c][:count]
        rest = np.full((count - len(images), *x.shape[1:]), blank, dtype=x.dtype)
        rows.append(np.concatenate([images, rest]))
    return np.stack(rows)


def data_uri(content: bytes) -> str:
    """A PNG for a page that opens offline."""
    return "data:image/png;base64," + base64.b64encode(content).decode()
