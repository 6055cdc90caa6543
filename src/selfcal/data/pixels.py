"""Images that stay bytes: a quarter of the memory that floats would take, or next to none, mapped from a file."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

PART = 256  # images that are floats at a time, where all of them are asked about


class Pixels:
    """Images (N, C, H, W) of bytes. What is taken of them, x[pick], x[:8], x.split(500), are floats in [−1, 1].

    Whatever else a tensor can do is done on all of them as floats, which takes their memory.
    """

    def __init__(self, stored: Tensor, mapping: mmap.mmap | None = None) -> None:
        self.stored, self.mapping = stored, mapping

    @classmethod
    def mapped(cls, mapping: mmap.mmap, shape: tuple[int, ...], start: int = 0) -> Pixels:
        """Images of that shape (N, C, H, W) from a file, of whose bytes only those in use are in memory."""
        flat = torch.frombuffer(mapping, dtype=torch.uint8, count=math.prod(shape), offset=start)
        return cls(flat.view(shape), mapping)

    @property
    def shape(self) -> torch.Size:
        return self.stored.shape

    @property
    def ndim(self) -> int:
        return self.stored.ndim

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, pick: Any) -> Tensor:
        return in_units(self.stored[pick])

    def __iter__(self) -> Iterator[Tensor]:
        return (one for part in self.split(PART) for one in part)

    def some(self, pick: Any) -> Pixels:
        """Those of a slice, a mask or a list of positions, still as bytes; a slice takes no memory."""
        return Pixels(self.stored[pick], self.mapping if isinstance(pick, slice) else None)

    def split(self, size: int) -> Iterator[Tensor]:
        """Floats, so many images at a time."""
        for part in self.stored.split(size):
            yield in_units(part)
            if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
                self.mapping.madvise(mmap.MADV_DONTNEED)  # what was read once for all is in the file still

    def float(self) -> Tensor:
        return in_units(self.stored)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.float().numpy().astype(dtype or np.float32, copy=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"Pixels have no {name}")
        return getattr(self.float(), name)

    @classmethod
    def __torch_function__(
        cls, function: Callable, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """torch.equal(x, y) and the like."""

        def floats(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(map(floats, value))
            return value.float() if isinstance(value, cls) else value

        return function(*map(floats, args), **{name: floats(value) for name, value in (kwargs or {}).items()})


Examples = Tensor | Pixels
"""Images as bytes, or any examples as floats; x[pick] and x.split(size) are floats of either."""


def in_units(stored: Tensor) -> Tensor:
    """Bytes -> [−1, 1]."""
    return stored.float().div_(127.5).sub_(1.0)


def some(x: Examples, pick: Any) -> Examples:
    """Some of them, as they are: bytes stay bytes."""
    return x.some(pick) if isinstance(x, Pixels) else x[pick]


def same_images(a: Examples, b: Examples) -> bool:
    """Whether they are the very same examples in the same order, compared part by part."""
    return a.shape == b.shape and all(torch.equal(p, q) for p, q in zip(a.split(PART), b.split(PART), strict=True))
