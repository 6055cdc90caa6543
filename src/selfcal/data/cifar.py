"""CIFAR-10 and CIFAR-100 from their official archives, python or binary version, packed or unpacked."""

from __future__ import annotations

import pickle
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.data import downloads, plain_pickle
from selfcal.data.dataset import Dataset
from selfcal.data.limits import check_inside
from selfcal.data.pixels import Pixels

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
PIXELS = 3 * 32 * 32
Read = Callable[[str], bytes]
"""The contents of a file of the archive, by its name without folders."""


@dataclass(frozen=True)
class Version:
    """How one archive is laid out."""

    archive: str
    md5: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str  # the file that names the classes
    labels: str  # python: the key of the labels and (as labels_names) of their names
    label_bytes: int  # binary: bytes before the pixels, the last of which is the label


RELEASES: dict[str, tuple[Version, Version]] = {
    "cifar10": (
        Version(
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            "cifar-10-batches-py",
            tuple(f"data_batch_{i}" for i in range(1, 6)),
            ("test_batch",),
            "batches.meta",
            "label",
            0,
        ),
        Version(
            "cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-batches-bin",
            tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            ("test_batch.bin",),
            "batches.meta.txt",
            "",
            1,
        ),
    ),
    "cifar100": (
        Version(
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            "cifar-100-python",
            ("train",),
            ("test",),
            "meta",
            "fine_label",
            0,
        ),
        Version(
            "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            "cifar-100-binary",
            ("train.bin",),
            ("test.bin",),
            "fine_label_names.txt",
            "",
            2,
        ),
    ),
}
PLACES = {place: (name, v) for name, versions in RELEASES.items() for v in versions for place in (v.archive, v.folder)}
"""Archives and what they unpack to, by their names."""


def load(name: str) -> Dataset:
    """The first version found among the user's downloads."""
    versions = RELEASES[name]
    path = downloads.find(name, [n for v in versions for n in (v.archive, v.folder)], PAGE)
    version = next(v for v in versions if path.name in (v.archive, v.folder))
    return _dataset(name, version, path)


def is_release(path: Path) -> bool:
    return path.name in PLACES and (path.is_file() if path.name.endswith(".tar.gz") else path.is_dir())


def load_release(path: Path) -> Dataset:
    """An official archive, or the folder it unpacks to, wherever it lies."""
    return _dataset(*PLACES[path.name], path)


def _dataset(name: str, version: Version, path: Path) -> Dataset:
    if path.is_file():
        downloads.check_md5(path, version.md5)
        files = _unpacked(path)
    else:
        files = _in_folder(path, (*version.train, *version.test, version.names))

    def read(file: str) -> bytes:
        if file not in files:
            raise SelfcalError(f"{path} lacks the file {file}; download it again")
        return files[file]

    classes = _class_names(read, version, path)
    x, y = _examples(read, version.train, version, len(classes), path)
    x_test, y_test = _examples(read, version.test, version, len(classes), path)
    return Dataset(name, x, y, classes, tuple(str(i) for i in range(len(x))), x_test, y_test)


def _in_folder(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    try:
        files = [path / name for name in names if (path / name).is_file()]
        for file in files:
            check_inside(file, path)
        return {file.name: file.read_bytes() for file in files}
    except OSError as error:
        raise SelfcalError(f"{path} cannot be read: {error.strerror}") from None


def _unpacked(path: Path) -> dict[str, bytes]:
    """Into memory, nothing onto the disk."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            return {Path(m.name).name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise SelfcalError(f"{path} cannot be read as an archive: {error}") from None


def _class_names(read: Read, version: Version, path: Path) -> tuple[str, ...]:
    if version.label_bytes:
        return tuple(line for line in read(version.names).decode("ascii", "replace").split("\n") if line.strip())
    names = _plain(read, version.names, path).get(f"{version.labels}_names".encode())
    if not isinstance(names, list) or not names or not all(isinstance(n, bytes) for n in names):
        raise SelfcalError(f"{path}: {version.names} does not name the classes")
    return tuple(n.decode("ascii", "replace") for n in names)


def _examples(read: Read, files: tuple[str, ...], version: Version, classes: int, path: Path) -> tuple[Pixels, Tensor]:
    parts = [(_binary if version.label_bytes else _pickled)(read, file, version, path) for file in files]
    x = torch.as_tensor(np.concatenate([p for p, _ in parts])).view(-1, 3, 32, 32)
    y = torch.as_tensor(np.concatenate([label for _, label in parts]).astype(np.int64))
    if not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise SelfcalError(f"{path}: labels from {int(y.min())} to {int(y.max())} do not fit {classes} classes")
    return Pixels(x), y


def _binary(read: Read, file: str, version: Version, path: Path) -> tuple[np.ndarray, np.ndarray]:
    data, record = np.frombuffer(read(file), dtype=np.uint8), version.label_bytes + PIXELS
    if not len(data) or len(data) % record:
        raise SelfcalError(f"{path}: {file} has {len(data)} bytes, not a multiple of {record}; download it again")
    rows = data.reshape(-1, record)
    return rows[:, version.label_bytes :], rows[:, version.label_bytes - 1]


def _pickled(read: Read, file: str, version: Version, path: Path) -> tuple[np.ndarray, np.ndarray]:
    batch = _plain(read, file, path)
    x = batch.get(b"data")
    try:
        y = np.asarray(batch.get(f"{version.labels}s".encode(), []))
    except (ValueError, OverflowError):  # lists of lists of different lengths, and the like
        y = np.zeros(0)
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape != (x.size // PIXELS, PIXELS) or not x.size:
        raise SelfcalError(f"{path}: {file} holds no array 'data' of 32×32 colour images")
    if y.dtype.kind not in "iu" or y.shape != (len(x),):
        raise SelfcalError(f"{path}: {file} does not give each of its {len(x)} images a label")
    return x, y


def _plain(read: Read, file: str, path: Path) -> dict[Any, Any]:
    try:
        return plain_pickle.loads(read(file))
    except plain_pickle.NotPlain as error:
        raise SelfcalError(
            f"{path}: {file} holds more than arrays and plain containers, which is never loaded ({error})"
        ) from None
    except pickle.UnpicklingError as error:
        raise SelfcalError(f"{path}: {file} is damaged ({error}); download it again") from None
