"""`run.precision` and `run.compile`: how networks compute. What they learn stays the same kind of number.

fp32   every product in full
tf32   products of a GPU with 10 bits of mantissa, sums in full; on a CPU the same as fp32
bf16   convolutions and matrix products with 7 bits; weights, averages, normalisation, logits and energies in fp32

A common offset of logits is of the order of the dimension, class differences of order one: 7 bits would destroy both,
so heads compute in fp32 whatever the rest does (`in_full` in layers.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def set_products(precision: str) -> None:
    """torch's own switches for fp32 products on a GPU, which hold for the whole process."""
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
        torch.backends.cudnn.allow_tf32 = precision != "fp32"


def in_precision(network: Any, precision: str) -> Callable[..., Tensor]:
    """The network as a function that computes so; it keeps its fp32 weights."""
    if precision != "bf16":
        function: Callable[..., Tensor] = network
        return function

    def computed(x: Tensor, *others: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            out: Tensor = network(x, *others)
        return out.float()

    return computed


def compiled(network: nn.Module) -> None:
    """In place, so that weights keep their names; the work is done when it is first called with each shape."""
    network.compile()
