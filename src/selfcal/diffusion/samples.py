"""Generated examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from selfcal.diffusion.sample_files import write


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
        """An `.npz` (x in [−1, 1], y, class names), a `.zip` or a folder of PNGs by class, or one `.png` of all."""
        write(self, Path(path))
