"""`.npz` files: arrays `x`, optional `y`, optional `x_test` and `y_test`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.reading import read_arrays
from selfcal.data.dataset import Dataset, no_test
from selfcal.data.pixels import Examples, Pixels
from selfcal.diffusion.scores import UNLABELED

ARRAYS = ("x", "y", "x_test", "y_test", "class_names")


def load(path: Path) -> Dataset:
    """Images (N,H,W), (N,H,W,C) or (N,C,H,W), or points (N,D).

    uint8 images stand for [−1, 1]; float images must already be there. y holds whole numbers or names;
    a negative number or an empty name means unlabelled.
    """
    return from_arrays(read_arrays(path, ARRAYS, needed="x"), path.stem, str(path))


def from_arrays(arrays: Mapping[str, np.ndarray], name: str, path: str) -> Dataset:
    """path: where they come from, for sentences. class_names, if there, are what the numbers in y stand for."""
    x = _examples(arrays["x"], f"{path}: x")
    labels = arrays.get("y", np.full(len(x), UNLABELED))
    names = arrays.get("class_names")
    classes, y = _classes(labels, len(x), f"{path}: y", names)
    x_test, y_test = no_test(x)
    if "x_test" in arrays:
        x_test = _examples(arrays["x_test"], f"{path}: x_test")
        if x_test.shape[1:] != x.shape[1:]:
            raise SelfcalError(f"{path}: x_test is shaped {tuple(x_test.shape)}, x {tuple(x.shape)}")
        if "y_test" not in arrays:
            raise SelfcalError(f"{path} has 'x_test' but no 'y_test'")
        numbered = classes if names is None else tuple(str(i) for i in range(len(classes)))
        y_test = _index(arrays["y_test"], numbered, len(x_test), f"{path}: y_test")
    return Dataset(
        name=name,
        x=x,
        y=y,
        classes=classes,
        names=tuple(str(i) for i in range(len(x))),
        x_test=x_test,
        y_test=y_test,
    )


def _examples(values: np.ndarray, where: str) -> Examples:
    if values.dtype.kind not in "uif":
        raise SelfcalError(f"{where} has type {values.dtype}; numbers are expected")
    if values.ndim < 2:
        raise SelfcalError(f"{where} is shaped {values.shape}; expected one example per row, (N,D) or images")
    if len(values) and not values.size:
        raise SelfcalError(f"{where} is shaped {values.shape}; its examples hold no numbers")
    if values.ndim == 2:
        return torch.as_tensor(values.astype(np.float32))
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim != 4:
        raise SelfcalError(
            f"{where} is shaped {values.shape}; expected points (N,D) or images (N,H,W), (N,H,W,C) or (N,C,H,W)"
        )
    if values.shape[1] not in (1, 3) and values.shape[3] in (1, 3):
        values = values.transpose(0, 3, 1, 2)
    if values.shape[1] not in (1, 3):
        raise SelfcalError(f"{where} is shaped {values.shape}; images have 1 or 3 channels")
    if values.dtype == np.uint8:
        return Pixels(torch.as_tensor(values))
    if values.dtype.kind != "f":
        raise SelfcalError(f"{where} has type {values.dtype}; images are uint8, or floats in [−1, 1]")
    finite = values[np.isfinite(values)]  # the rest is refused by Dataset, which names the example
    if finite.size and np.abs(finite).max() > 1.0001:
        raise SelfcalError(f"{where} spans [{finite.min():.3g}, {finite.max():.3g}]; float images must lie in [−1, 1]")
    if finite.size == values.size and finite.size and finite.min() >= 0 and finite.max() > 0:
        raise SelfcalError(f"{where} has no negative value, as if it spanned [0, 1]; save 2x − 1, or uint8")
    return torch.as_tensor(values.astype(np.float32))


def _classes(
    labels: np.ndarray, count: int, where: str, names: np.ndarray | None = None
) -> tuple[tuple[str, ...], Tensor]:
    _check_labels(labels, count, where)
    if names is not None:
        listed = tuple(str(name) for name in np.atleast_1d(names).tolist())
        if len(set(listed)) < len(listed):
            raise SelfcalError(f"{where}: class_names holds a name twice")
        return listed, _index(labels, tuple(str(i) for i in range(len(listed))), count, where)
    labelled = labels[labels >= 0] if labels.dtype.kind in "iu" else labels[labels != ""]
    classes = tuple(str(c) for c in np.unique(labelled).tolist())  # in the order of numbers, or of the alphabet
    return classes, _index(labels, classes, count, where)


def _check_labels(labels: np.ndarray, count: int, where: str) -> None:
    if labels.shape != (count,):
        raise SelfcalError(f"{where} is shaped {labels.shape}; expected one label per example, ({count},)")
    if labels.dtype.kind not in "iuU":
        raise SelfcalError(f"{where} has type {labels.dtype}; labels are whole numbers or names")
    if labels.dtype.kind == "i" and len(labels) and labels.min() < UNLABELED:
        raise SelfcalError(f"{where} holds the label {labels.min()}; classes count from 0, and −1 means unlabelled")


def _index(labels: np.ndarray, classes: tuple[str, ...], count: int, where: str) -> Tensor:
    _check_labels(labels, count, where)
    position = {name: i for i, name in enumerate(classes)}
    positions = []
    for label in labels.tolist():
        hidden = label == "" if isinstance(label, str) else label < 0
        if not hidden and str(label) not in position:
            raise SelfcalError(f"{where} names the class {label!r}, which y does not have")
        positions.append(UNLABELED if hidden else position[str(label)])
    return torch.as_tensor(positions, dtype=torch.long)
