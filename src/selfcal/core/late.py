"""torch, imported when it is first used: commands that print what is written down do not wait for it.

    from selfcal.core.late import Tensor, torch

The method table and the batches it names are written so. Networks subclass torch's own classes and import it as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:

    class _Late:
        def __getattr__(self, name: str) -> Any:
            import torch

            return getattr(torch, name)

    torch = _Late()
    Tensor = "Tensor"  # stands in annotations alone, which nobody evaluates
