"""Generated examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selfcal.core.bounds import check_memory
from selfcal.core.errors import SelfcalError
from selfcal.diffusion.pictures import pixels
from selfcal.diffusion.sample_files import as_image, picture, running, write

ANY_CLASS = "any class"  # of samples that nobody guided
NAMED = 6  # classes, in a short description
PART = 1000  # samples that are written at a time


@dataclass(frozen=True, repr=False)
class Samples:
    """Generated examples x (N, *) in the data's units, the classes asked for, and how they were made.

    Made by `Run.sample`:

        images = run.sample(classes="3,5", count=16)
        images                        # in a notebook: a grid with the names of the classes
        images[:4].to_pil()[0].show()
        images.save("images.npz")
    """

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]
    made: dict[str, Any]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: Any) -> Samples:
        """Some of them: a position, a slice, a list or a mask. One alone is a set of one, which shows as a picture."""
        which = [which] if isinstance(which, int) else which
        return Samples(self.x[which], self.y[which], self.classes, self.made)

    def __iter__(self) -> Iterator[Samples]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        named = [self.classes[c] for c in self.y.unique().tolist()]
        listed = ", ".join(named[:NAMED]) + (f" and {len(named) - NAMED} more" if len(named) > NAMED else "")
        what, size = "image" if self.x.ndim == 4 else "point", "×".join(map(str, self.x.shape[1:]))
        how = f", λ = {self.made['scale']:g}, {self.made['sampler']}" if {"scale", "sampler"} <= {*self.made} else ""
        return f"Samples({len(self)} {what}{'s' * (len(self) != 1)} of {listed or 'no class'}; {size}{how})"

    def _repr_png_(self) -> bytes | None:
        return picture(self) if self.x.ndim == 4 and len(self) else None

    def to_pil(self) -> list[Image.Image]:
        """A picture of each."""
        if self.x.ndim != 4:
            raise SelfcalError("points have no pictures; images do")
        return [as_image(image) for image in pixels(self.x.numpy())]

    def numpy(self) -> np.ndarray:
        """x as an array (N, *), images in [−1, 1]."""
        array: np.ndarray = self.x.numpy()
        return array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one of them."""
        return tuple(self.x.shape[1:])

    def parts(self) -> Iterable[Tensor]:
        return self.x.split(PART)

    def save(self, path: str | Path) -> None:
        """An `.npz` (x in [−1, 1], y, class names), a `.zip` or a folder of PNGs by class, or one `.png` of all."""
        write(self, Path(path))


@dataclass(frozen=True)
class Drawing:
    """Samples on their way: made batch by batch while one asks for them."""

    y: Tensor
    classes: tuple[str, ...]
    made: dict[str, Any]
    shape: tuple[int, ...]
    batches: Callable[[], Iterator[Tensor]]

    def __len__(self) -> int:
        return len(self.y)

    def parts(self) -> Iterator[Tensor]:
        """In the order of y."""
        return self.batches()

    def save(self, path: str | Path) -> None:
        """As those of `Samples`."""
        write(self, Path(path))

    def all(self) -> Samples:
        size = 4 * len(self.y) * math.prod(self.shape)
        check_memory(size, f"{len(self.y)} samples at once", "write them with `draw(…).save(…)`, or ask for fewer")
        x = torch.empty(0, *self.shape)
        for start, part in running(self.parts()):
            if not start:
                x = part.new_empty(len(self.y), *self.shape) if len(part) < len(self.y) else part
            x[start : start + len(part)] = part
        return Samples(x, self.y, self.classes, self.made)
