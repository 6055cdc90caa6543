"""Horizontal flips: a mirrored photo is another photo of the same thing (a mirrored digit is not)."""

from __future__ import annotations

import torch
from torch import Tensor


def mirrored_at_random(x: Tensor, rng: torch.Generator | None) -> Tensor:
    """Each image (B, C, H, W) flipped left to right with probability ½."""
    flip = torch.rand(len(x), generator=rng) < 0.5
    return torch.where(flip[:, None, None, None], x.flip(-1), x)
