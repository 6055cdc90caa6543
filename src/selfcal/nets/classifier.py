"""The noise-aware classifier f(x, y, σ), whose logits are also read as an energy."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from selfcal.diffusion.scores import like
from selfcal.nets.blocks import norm
from selfcal.nets.ncsnpp import Encoder


class Classifier(nn.Module):
    """(B, *), (B,) -> logits (B, K) from c_in x, in fp32 and unscaled: the calibration acts on them as they are.

    logsumexp of the logits must behave like log p_σ(x): a common offset of the order of the
    dimension with class differences of order one, which half precision would destroy.
    """

    def __init__(self, network: nn.Module, sigma_data: float) -> None:
        super().__init__()
        self.network = network
        self.sigma_data = sigma_data

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        total = (like(sigma, x) ** 2 + self.sigma_data**2).sqrt()
        return self.network(x / total, sigma).float()


class EncoderHead(nn.Module):
    """Logits from the innermost features of NCSN++'s encoder: GroupNorm, SiLU, mean over pixels, linear.

    The paper says "the encoder part of NCSN++" and leaves the head open.
    """

    def __init__(self, encoder: Encoder, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.norm = norm(encoder.widths[-1])
        self.leave = small(nn.Linear(encoder.widths[-1], classes))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        _, h, _ = self.encoder(x, sigma)
        return self.leave(F.silu(self.norm(h)).mean((2, 3)))


def small(head: nn.Linear) -> nn.Linear:
    """Small first weights, not zero: with zero logits the inner score and every gradient into the trunk would be."""
    nn.init.normal_(head.weight, std=0.01)
    nn.init.zeros_(head.bias)
    return head
