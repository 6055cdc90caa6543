"""Data that is in memory already: arrays, tensors, or a torch `Dataset`; and the copy of it that a run keeps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced, write_arrays
from selfcal.data import arrays
from selfcal.data.dataset import Dataset
from selfcal.data.pixels import Examples, Pixels

KEPT = "data.npz"
"""The copy's name in a run directory, and in config.json: no path of the user's reads so."""
NAME = "arrays"


def in_memory(data: Any) -> bool:
    return not isinstance(data, str | os.PathLike)


def from_memory(data: Any) -> Dataset:
    """(x, y), {"x": …, "y": …, "x_test": …, "y_test": …}, x alone, or what has a length and gives (image, label)."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Mapping):
        return arrays.from_arrays(known(data), NAME, "data")
    if isinstance(data, tuple) and len(data) == 2:
        return arrays.from_arrays({"x": array(data[0]), "y": array(data[1])}, NAME, "data")
    if isinstance(data, np.ndarray | Tensor):
        return arrays.from_arrays({"x": array(data)}, NAME, "data")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list):
        return from_items(data)
    raise SelfcalError(
        f"data is a {type(data).__name__}; give a name, a path, arrays (x, y) or {{'x': …, 'y': …}}, or a torch Dataset"
    )


def known(data: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if strange := sorted(set(data) - {*arrays.ARRAYS}):
        raise SelfcalError(f"data has {strange[0]!r}; known: {', '.join(arrays.ARRAYS)}")
    if "x" not in data:
        raise SelfcalError(f"data has no 'x'; it has {', '.join(sorted(data)) or 'nothing'}")
    return {name: array(value) for name, value in data.items()}


def array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def from_items(items: Any) -> Dataset:
    """A torch Dataset, read whole. Tensors of torchvision's ToTensor lie in [0, 1]: that is said, not hidden."""
    if not len(items):
        raise SelfcalError(f"the {type(items).__name__} given as data is empty")
    read = [items[i] for i in range(len(items))]
    labelled = isinstance(read[0], tuple | list) and len(read[0]) == 2
    images = [pixels(item[0] if labelled else item) for item in read]
    if len({image.shape for image in images}) > 1:
        shapes = sorted({image.shape for image in images})[:2]
        raise SelfcalError(f"the images of the {type(items).__name__} differ in shape, {shapes[0]} and {shapes[1]}")
    x, notes = np.stack(images), tuple[str, ...]()
    if x.dtype.kind == "f" and x.ndim == 4 and x.min() >= 0 and x.max() <= 1:
        x, notes = 2 * x - 1, ("its images lie in [0, 1] and were taken to [−1, 1]",)
    found = {"x": x}
    names: Sequence[str] = getattr(items, "classes", ()) or ()
    if labelled:
        found["y"] = np.asarray([item[1].item() if hasattr(item[1], "item") else item[1] for item in read])
        if len(names) and found["y"].dtype.kind in "iu":
            found["class_names"] = np.array([str(name) for name in names])
    return replace(arrays.from_arrays(found, type(items).__name__, "data"), notes=notes)


def pixels(image: Any) -> np.ndarray:
    """Pictures as bytes, channels last; tensors and arrays as they are."""
    if isinstance(image, Image.Image):
        return np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    return array(image)


def keep(data: Dataset, folder: Path) -> None:
    """The copy by which a run finds its data again: bytes where nothing is lost by it."""
    file = folder / KEPT
    if not file.exists():
        with surfaced(f"cannot write {file}"):
            write_arrays(
                file,
                {
                    "x": stored(data.x, data.is_image),
                    "y": data.y.numpy(),
                    "x_test": stored(data.x_test, data.is_image),
                    "y_test": data.y_test.numpy(),
                    "class_names": np.array(data.classes),
                },
            )


def stored(x: Examples, is_image: bool) -> np.ndarray:
    if isinstance(x, Pixels):
        return np.asarray(x.stored.numpy())
    if is_image:
        bytes_ = ((x + 1) * 127.5).round().clamp(0, 255).byte().numpy()
        if np.array_equal(bytes_.astype(np.float32) / 127.5 - 1.0, x.numpy()):
            return np.asarray(bytes_)
    return np.asarray(x.numpy())
