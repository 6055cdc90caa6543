"""Where examples come from, a row each; `load_data` turns what a user types into a `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from selfcal.core.bounds import check_name
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


BUILT_IN = "builtin:"
"""Before a name, where a folder of the same name is not meant."""
MADE_HERE = ("config.json", "compare.json", "report.html")  # known by these, a folder of that name is a run's, no data


def load_data(source: str | Path, size: int | None = None, skip_broken: bool = False) -> Dataset:
    """A name, an `.npz` file, CIFAR packed or unpacked, a folder of images or of IDX files.

    size: of the images in a folder, the middle square of each at that many pixels a side. skip_broken: do
    without files that cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        raise SelfcalError(
            f"data is a {type(source).__name__}; here a name or a path is needed: save arrays as an .npz"
        )
    name, path = recorded(source), Path(source)
    if name in SOURCES:
        return _whole(replace(SOURCES[name](), published=True), size)
    if path.suffix.lower() == ".npz":
        if not path.is_file():
            raise SelfcalError(f"the data file {path} does not exist")
        return _whole(arrays.load(path), size)
    if cifar.is_release(path):
        return _whole(replace(cifar.load_release(path), published=True), size)
    if str(source).strip() and path.is_dir():
        return _whole(idx.load(path), size) if idx.is_idx(path) else folder.load(path, size, skip_broken)
    raise _unknown(str(source), path)


def recorded(source: str | Path) -> str:
    """What a run remembers its data by: the name of a built-in set, or an absolute path.

    Where a name could be either the user is asked; a path, such as ./fashion, is a path.
    """
    text = str(source)
    if text.startswith(BUILT_IN):
        name = text.removeprefix(BUILT_IN)
        if name not in SOURCES:
            raise unknown("data", name, SOURCES)
        return name
    if not isinstance(source, str) or text not in SOURCES:
        return check_name(Path(source).resolve())
    if os.path.isdir(text) and not any(os.path.exists(os.path.join(text, mark)) for mark in MADE_HERE):
        raise SelfcalError(
            f"{text} is a built-in data set, and there is a folder {text} here; "
            f"write ./{text} for the folder, or {BUILT_IN}{text} for the set"
        )
    return text


def spelled(source: str) -> str:
    """What `recorded` returned, as something to load: whatever folder lies about meanwhile."""
    return BUILT_IN + source if source in SOURCES else source


def _whole(data: Dataset, size: int | None) -> Dataset:
    """What is no folder of images comes as it is."""
    if size is not None and data.shape[1:] != (size, size):
        raise SelfcalError(f"--size {size} is for a folder of images; examples of {data.name} are shaped {data.shape}")
    return data


def _unknown(name: str, path: Path) -> SelfcalError:
    if not name.strip():
        return SelfcalError("no data is named; give a folder, an .npz file, or one of " + ", ".join(SOURCES))
    if not path.exists() and ("/" in name or "\\" in name):
        return SelfcalError(f"the folder {path} does not exist")
    if path.exists():
        return SelfcalError(f"{path} is neither a folder of images nor an .npz file")
    here = [entry.name for entry in Path().iterdir() if entry.is_dir() or entry.suffix.lower() == ".npz"]
    near = get_close_matches(name, [*here, *SOURCES], n=1)
    if near and near[0] in here:
        return SelfcalError(f"there is no folder or file {name!r} here; did you mean {near[0]!r}?")
    return SelfcalError(f"{unknown('data', name, [*SOURCES])}; or give a folder of images or an .npz file")
