"""Images as squares of pixels: a cheap entry to a network, which then works at a fraction of the resolution."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class PatchesIn(nn.Module):
    """A network of patches, given images: (B, C, H, W) enters as (B, C·p², H/p, W/p)."""

    def __init__(self, network: nn.Module, patch: int) -> None:
        super().__init__()
        self.network = network
        self.patch = patch

    def forward(self, x: Tensor, sigma: Tensor, *y: Tensor) -> Tensor:
        out: Tensor = self.network(F.pixel_unshuffle(x, self.patch), sigma, *y)
        return out


class PatchesInAndOut(PatchesIn):
    """The same where the network also gives patches: a denoiser."""

    def forward(self, x: Tensor, sigma: Tensor, *y: Tensor) -> Tensor:
        return F.pixel_shuffle(super().forward(x, sigma, *y), self.patch)
