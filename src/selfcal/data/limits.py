"""How much a reader takes in before it says no: a small file can unpack to more than any memory."""

from __future__ import annotations

import os
from pathlib import Path

from selfcal.core.errors import SelfcalError

LARGEST_IMAGE = 2**26  # pixels of one image
LARGEST_TEXT = 2**28  # bytes of a label file


def check_inside(path: Path, root: Path) -> None:
    """A link must not lead out of the data: what is trained on is what one was handed."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        raise SelfcalError(f"{path} is a link that leads out of {root}, to {real}; copy the files into it instead")
