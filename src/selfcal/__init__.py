"""selfcal: class-conditional image generation when only a few images are labelled."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from selfcal.core.errors import SelfcalError
    from selfcal.diffusion.generator import Samples
    from selfcal.interop.adopt import adopt
    from selfcal.run import Run, load
    from selfcal.training.fit import train

__all__ = ["Run", "Samples", "SelfcalError", "adopt", "load", "train"]

_ROOMS = {
    "Run": "selfcal.run",
    "Samples": "selfcal.diffusion.generator",
    "SelfcalError": "selfcal.core.errors",
    "adopt": "selfcal.interop.adopt",
    "load": "selfcal.run",
    "train": "selfcal.training.fit",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `selfcal --help` does not wait for torch."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'selfcal' has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)
