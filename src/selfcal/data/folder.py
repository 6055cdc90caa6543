"""Folders of images as a data set: which file is what is told by `layout`, what is in it by `pile`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError, listed
from selfcal.data import pile
from selfcal.data.dataset import Dataset, Files
from selfcal.data.images import ENDINGS
from selfcal.data.layout import Split, survey
from selfcal.data.naming import place_of
from selfcal.diffusion.scores import UNLABELED

LARGEST_SIDE = 4096


def load(root: Path, size: int | None = None, skip_broken: bool = False) -> Dataset:
    """All images below root, in the order of their names: of one size, or the middle square of each at `size`."""
    if size is not None and not 1 <= size <= LARGEST_SIDE:
        raise SelfcalError(f"--size {size}: images have from 1 to {LARGEST_SIDE} pixels a side")
    try:
        return _load(root, size, skip_broken)
    except OSError as error:  # a folder that vanished or may not be listed
        raise SelfcalError(f"{error.filename or root} cannot be read: {error.strerror or error}") from None


def _load(root: Path, size: int | None, skip_broken: bool) -> Dataset:
    found = survey(root)
    train, test = found.train, found.test
    if not train.files:
        raise SelfcalError("; ".join([f"{train.root} holds no images ({', '.join(sorted(ENDINGS))})", *found.notes]))
    classes = train.classes or test.classes
    read = pile.read(train.files, test.files, root, size, skip_broken)

    def from_root(files: list[Path]) -> tuple[str, ...]:
        return tuple(file.relative_to(root).as_posix() for file in files)

    return Dataset(
        name=root.resolve().name,
        x=read.x,
        y=_positions(train, read.train, classes),
        classes=classes,
        names=tuple(_name(file, train.root, root) for file in read.train),
        x_test=read.x_test,
        y_test=_positions(test, read.test, classes),
        files=Files(
            root, from_root([*read.train]), from_root([*read.test]), from_root([*read.broken]), tuple(found.tables)
        ),
        notes=(*read.notes, *found.notes),
    )


def _name(file: Path, train: Path, root: Path) -> str:
    """As seen from the folder of the training images; of unlabelled ones outside of it, from the root."""
    return file.relative_to(train if file.is_relative_to(train) else root).as_posix()


def _positions(split: Split, kept: list[Path], classes: tuple[str, ...]) -> Tensor:
    places = {name: place_of(name, classes) for name in split.classes}
    if strange := [str(split.root / name) for name, place in places.items() if place is None]:
        raise SelfcalError(
            f"{listed(strange)} {'is' if len(strange) == 1 else 'are'} not among the training classes "
            f"({listed(classes, 20)})"
        )
    of_file = dict(zip(split.files, split.folders, strict=True))
    folders = [of_file[file] for file in kept]
    return torch.as_tensor([UNLABELED if f is None else places[f] for f in folders], dtype=torch.long)
