"""Generated examples, and how they become files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.files import write_arrays


@dataclass(frozen=True)
class Samples:
    """Generated examples x (N, *) in the data's units, the classes asked for, and how they were made."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]
    made: dict[str, Any]

    def __len__(self) -> int:
        return len(self.x)

    def save(self, path: str | Path) -> None:
        """An `.npz` (x in [−1, 1], y, class names), or a folder of PNGs by class."""
        path = Path(path)
        if path.suffix == ".npz":
            path.parent.mkdir(parents=True, exist_ok=True)
            write_arrays(path, {"x": self.x.numpy(), "y": self.y.numpy(), "classes": np.array(self.classes)})
            return
        if self.x.ndim != 4:
            raise SelfcalError(f"points cannot be saved as images; give --out a name that ends in .npz, not {path}")
        for c in self.y.unique().tolist():
            folder = path / folder_name(self.classes[c], c)
            folder.mkdir(parents=True, exist_ok=True)
            for i, image in enumerate(self.x[self.y == c]):
                to_image(image).save(folder / f"{i:05d}.png")


def folder_name(name: str, position: int) -> str:
    """The class's name, unless it would lead elsewhere: names can come from files that others wrote."""
    plain = name.isprintable() and name.strip(". ") and not {"/", "\\", ":"} & {*name} and len(name.encode()) < 200
    return name if plain else f"class-{position}"


def to_image(x: Tensor) -> Image.Image:
    """(C, H, W) in [−1, 1] -> a grey or colour image."""
    pixels = ((x.clamp(-1, 1) + 1) * 127.5).round().byte().numpy()
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
