"""Where examples come from, a row each; `load_data` turns what a user types into a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from selfcal.core.errors import SelfcalError, unknown
from selfcal.data import arrays, cifar, digits, folder, idx, moons
from selfcal.data.dataset import Dataset

SOURCES: dict[str, Callable[[], Dataset]] = {
    "moons": moons.load,
    "digits": digits.load,
    "cifar10": partial(cifar.load, "cifar10"),
    "cifar100": partial(cifar.load, "cifar100"),
    "fashion": idx.fashion,
    "mnist": idx.mnist,
}


def load_data(source: str | Path) -> Dataset:
    """A name, an `.npz` file, CIFAR packed or unpacked, a folder of images or of IDX files."""
    name, path = str(source), Path(source)
    if name in SOURCES:
        return SOURCES[name]()
    if path.suffix.lower() == ".npz":
        if not path.is_file():
            raise SelfcalError(f"the data file {path} does not exist")
        return arrays.load(path)
    if cifar.is_release(path):
        return cifar.load_release(path)
    if name.strip() and path.is_dir():
        return idx.load(path) if idx.is_idx(path) else folder.load(path)
    if not name.strip():
        raise SelfcalError("no data is named; give a folder, an .npz file, or one of " + ", ".join(SOURCES))
    if not path.exists() and ("/" in name or "\\" in name):
        raise SelfcalError(f"the folder {path} does not exist")
    if path.exists():
        raise SelfcalError(f"{path} is neither a folder of images nor an .npz file")
    raise SelfcalError(f"{unknown('data', name, [*SOURCES])}; or give a folder of images or an .npz file")
