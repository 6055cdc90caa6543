"""The kinds of function that everything in selfcal is made of, and how σ meets x."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

UNLABELED = -1
"""The class of an example whose label is hidden or unknown, and the null token of classifier-free guidance."""

ScoreFn = Callable[["Tensor", "Tensor"], "Tensor"]
"""x (B, *), sigma (B,)  ->  ∇ₓ log p_σ(x) (B, *)."""

Conditional = Callable[["Tensor", "Tensor", "Tensor"], "Tensor"]
"""x (B, *), sigma (B,), y (B,)  ->  ∇ₓ log p_σ(x | y) (B, *); of y = UNLABELED the unconditional score."""

Logits = Callable[["Tensor", "Tensor"], "Tensor"]
"""A classifier: x (B, *), sigma (B,)  ->  f(x, ·, σ) (B, K)."""


def like(sigma: Tensor, x: Tensor) -> Tensor:
    """One number per example (B,), shaped so that it broadcasts against x (B, *)."""
    return sigma.reshape(-1, *[1] * (x.ndim - 1))
