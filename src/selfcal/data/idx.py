"""IDX files, the format of MNIST and Fashion-MNIST: `train-images-idx3-ubyte` and its like, gzipped or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.reading import LARGEST_ARRAYS
from selfcal.data import downloads
from selfcal.data.dataset import Dataset, no_test
from selfcal.data.pixels import Pixels

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
LARGEST = LARGEST_ARRAYS // 4  # bytes of one file
FASHION = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def fashion() -> Dataset:
    """Fashion-MNIST among the user's downloads, or where Debian's package dataset-fashion-mnist puts it."""
    debian = Path("/usr/share/datasets/fashion-mnist")
    root = debian if is_idx(debian) else _folder("fashion-mnist", "https://github.com/zalandoresearch/fashion-mnist")
    return load(root, "fashion", FASHION)


def mnist() -> Dataset:
    return load(_folder("mnist", "http://yann.lecun.com/exdb/mnist"), "mnist")


def is_idx(root: Path) -> bool:
    return _file(root, TRAIN[0]) is not None


def load(root: Path, name: str | None = None, classes: tuple[str, ...] = ()) -> Dataset:
    """A folder of the four files (the test split may be missing); without names, classes are called by number."""
    x, y = _split(root, TRAIN)
    classes = classes or tuple(str(c) for c in range(int(y.max()) + 1))
    x_test, y_test = _split(root, TEST) if _file(root, TEST[0]) else no_test(x)
    for part in (y, y_test):
        if len(part) and int(part.max()) >= len(classes):
            raise SelfcalError(f"{root}: a label is {int(part.max())}, but there are {len(classes)} classes")
    if x_test.shape[1:] != x.shape[1:]:
        raise SelfcalError(f"{root}: test images are shaped {tuple(x_test.shape[1:])}, others {tuple(x.shape[1:])}")
    return Dataset(name or root.resolve().name, x, y, classes, tuple(str(i) for i in range(len(x))), x_test, y_test)


def _folder(name: str, page: str) -> Path:
    return downloads.find(name, [name], page, ", ".join(f"{file}.gz" for file in (*TRAIN, *TEST)))


def _file(root: Path, name: str) -> Path | None:
    return next((p for p in (root / name, root / f"{name}.gz") if p.is_file()), None)


def _split(root: Path, names: tuple[str, str]) -> tuple[Pixels, Tensor]:
    images, labels = (_array(root, name) for name in names)
    if images.ndim != 3 or not images.size or labels.shape != images.shape[:1]:
        raise SelfcalError(f"{root}: {names[0]} is shaped {images.shape}, {names[1]} {labels.shape}")
    return Pixels(torch.as_tensor(images)[:, None]), torch.as_tensor(labels.astype(np.int64))


def _array(root: Path, name: str) -> np.ndarray:
    """Two zero bytes, the type (8: bytes), the number of dimensions, their sizes, then the numbers themselves."""
    path = _file(root, name)
    if path is None:
        raise SelfcalError(f"{root} lacks the file {name}")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(LARGEST + 1)  # a small file may unpack to any size
    except (OSError, EOFError, zlib.error) as error:
        raise SelfcalError(f"{path} cannot be unpacked: {error}") from None
    if len(data) > LARGEST:
        raise SelfcalError(f"{path} unpacks to more than {LARGEST >> 30} GiB")
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise SelfcalError(f"{path} is not an IDX file of bytes")
    start = 4 + 4 * data[3]
    shape = tuple(np.frombuffer(data[4:start].ljust(4 * data[3], b"\0"), dtype=">u4").tolist())
    if len(data) - start != math.prod(shape):
        raise SelfcalError(f"{path} should hold {' × '.join(map(str, shape))} bytes, but has {len(data) - start}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape).copy()
