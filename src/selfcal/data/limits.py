"""How much a reader takes in before it says no: a small file can unpack to more than any memory."""

from __future__ import annotations

import math
import os
from pathlib import Path

from selfcal.core.errors import SelfcalError

LARGEST_ARRAYS = 2**33  # bytes of one array once unpacked
LARGEST_IMAGE = 2**26  # pixels of one image
LARGEST_TEXT = 2**28  # bytes of a label file


def check_size(shape: tuple[int, ...], where: str, itemsize: int = 4) -> None:
    """Before anything is allocated for it. itemsize: bytes of a number; images of bytes stay so, all else becomes
    float32."""
    wanted = math.prod(shape) * itemsize
    if wanted > LARGEST_ARRAYS:
        raise SelfcalError(
            f"{where} unpacks to {wanted / 2**30:,.0f} GiB ({' × '.join(map(str, shape))}); "
            f"at most {LARGEST_ARRAYS >> 30} GiB are read"
        )


def check_inside(path: Path, root: Path) -> None:
    """A link must not lead out of the data: what is trained on is what one was handed."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        raise SelfcalError(f"{path} is a link that leads out of {root}, to {real}; copy the files into it instead")
