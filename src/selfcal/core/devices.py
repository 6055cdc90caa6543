"""Where networks compute."""

from __future__ import annotations

import torch


def usual_device() -> torch.device:
    """A GPU if there is one: of several processes on a machine, the one that Accelerate gave to this process."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
