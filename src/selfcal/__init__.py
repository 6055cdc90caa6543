"""selfcal: class-conditional image generation when only a few images are labelled.

    run = selfcal.train("digits", method="cg-sc-all", labels=0.02, out="runs/digits")
    run.sample(classes=[3], count=16, scale=1.5).save("threes.npz")

Building blocks to use alone: `selfcal.diffusion` (noise, guidance, samplers), `selfcal.metrics`,
`selfcal.training.loop`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfcal.core.errors import SelfcalError
    from selfcal.core.version import __version__
    from selfcal.diffusion.samples import Samples
    from selfcal.interop.adopt import adopt
    from selfcal.run import Run, load, train

__all__ = ["Run", "Samples", "SelfcalError", "__version__", "adopt", "load", "train"]

_ROOMS = {
    "Run": "selfcal.run",
    "Samples": "selfcal.diffusion.samples",
    "SelfcalError": "selfcal.core.errors",
    "__version__": "selfcal.core.version",
    "adopt": "selfcal.interop.adopt",
    "load": "selfcal.run",
    "train": "selfcal.run",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `selfcal --help` does not wait for torch."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'selfcal' has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
