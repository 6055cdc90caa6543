"""Pieces that several networks share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def in_full(x: Tensor) -> torch.autocast:
    """Meanwhile nothing is computed in half precision, whoever asked for it around."""
    return torch.autocast(x.device.type, enabled=False)


class FourierFeatures(nn.Module):
    """sin and cos of ln σ at fixed random frequencies: (B,) -> (B, 2·count)."""

    frequencies: Tensor

    def __init__(self, count: int = 16, scale: float = 1.0) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)  # the same for every network: frozen, not learned
        self.register_buffer("frequencies", scale * torch.randn(count, generator=rng, device="cpu"))

    def forward(self, sigma: Tensor) -> Tensor:
        angle = sigma.log()[:, None] * self.frequencies
        return torch.cat([angle.sin(), angle.cos()], dim=-1)
