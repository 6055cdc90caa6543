"""What every data source returns: a pile of examples, and what is known of their classes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.data.pixels import PART, Examples, Pixels, some
from selfcal.diffusion.scores import UNLABELED


@dataclass(frozen=True)
class Files:
    """Of a folder: what its files are called from its root, which a label file may do, and what was left out."""

    root: Path
    train: tuple[str, ...]  # of x, in its order
    test: tuple[str, ...]  # of x_test
    skipped: tuple[str, ...] = ()  # broken ones, which a label file may still name
    label_files: tuple[Path, ...] = ()  # tables that lie beside the images


@dataclass(frozen=True)
class Dataset:
    """Examples in [−1, 1] (points in their own units) with their classes where somebody knows them.

    y is the *truth*, used for evaluation only; what a method may see of it is decided by
    `labels.reveal`. `names` is how a label file refers to each training example.
    """

    name: str
    x: Examples  # (N, *); images may be bytes, of which x[pick] and x.split(size) are floats
    y: Tensor  # (N,) class index or UNLABELED
    classes: tuple[str, ...]
    names: tuple[str, ...]
    x_test: Examples  # (M, *), M may be 0
    y_test: Tensor  # (M,)
    files: Files | None = None
    published: bool = False  # a set that everybody has: its labels are hidden to learn what few of them can do
    notes: tuple[str, ...] = ()  # what whoever trains on it should hear of how it was read

    def __post_init__(self) -> None:
        if len(self.x) == 0:
            raise SelfcalError(f"{self.name} holds no examples to train on")
        for part, x in (("training", self.x), ("test", self.x_test)):
            if isinstance(x, Pixels):
                continue
            bad = ~torch.isfinite(x.flatten(1)).all(1) if len(x) else torch.zeros(0, dtype=torch.bool)
            if bad.any():
                where = self.names[int(bad.nonzero()[0])] if part == "training" else int(bad.nonzero()[0])
                raise SelfcalError(
                    f"{self.name}: {int(bad.sum())} {part} example(s) hold NaN or infinite values, "
                    f"the first is {where}; remove or repair them"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def fewest_per_class(self) -> int:
        """Training examples of known class, in the class that has the fewest."""
        labels = self.y[self.y != UNLABELED]
        return int(torch.bincount(labels, minlength=max(1, len(self.classes))).min())

    @cached_property
    def sha256(self) -> str:
        """Identity of the training examples and their classes, whatever file they came from."""
        digest = hashlib.sha256(repr((self.shape, self.classes)).encode())
        for part in self.x.split(PART):  # as floats, whether or not they lie so in memory
            digest.update(part.contiguous().numpy().data)
        digest.update(self.y.contiguous().numpy().tobytes())
        return digest.hexdigest()


def no_test(x: Examples) -> tuple[Examples, Tensor]:
    """An empty test split for examples shaped like x."""
    return some(x, slice(0)), torch.zeros(0, dtype=torch.long)


def every_fifth(y: Tensor) -> Tensor:
    """A fixed, stratified test split: the mask of every fifth example of each class."""
    test = torch.zeros(len(y), dtype=torch.bool)
    for c in y.unique():
        test[(y == c).nonzero()[::5, 0]] = True
    return test
