"""The noise-aware classifier f(x, y, σ), whose logits are also read as an energy: a trunk and a head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.diffusion.scores import like
from selfcal.nets.blocks import norm
from selfcal.nets.layers import in_full
from selfcal.nets.ncsnpp import Encoder
from selfcal.nets.second_derivatives import silu


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


class PooledHead(nn.Module):
    """f(x, y, σ) = w_y · mean over pixels of SiLU(norm(h)), h the innermost features of NCSN++'s encoder.

    The paper says "the encoder part of NCSN++" and leaves the head open. The inner score of this one hardly
    learns: a log-density is a sum over pixels with gradients of 1/σ in each, a mean of normalised features is not.
    """

    def __init__(self, encoder: Encoder, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.norm = norm(encoder.widths[-1])
        self.leave = small(nn.Linear(encoder.widths[-1], classes))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        _, h, _ = self.encoder(x, sigma)
        with in_full(h):
            return self.leave(silu(self.norm(h)).mean((2, 3)))


class EnergyHead(nn.Module):
    """f(x, y, σ) = −‖x‖²/2 + Σ_l Σ_pixels w_{l,y} · g_l(σ) SiLU(h_l), over all resolutions l of NCSN++'s encoder.

    x is already c_in x, so the first term is −‖x‖²/(2(σ² + σ_d²)) of the image: common to all classes, which
    softmax does not see, and the best linear inner score to start from. Sums, and no normalisation: a log-density
    is extensive. Every resolution: fine noise must reach the energy. g_l(σ) = exp(linear of what is known of σ),
    1 at first: the energy's scale changes with σ by orders of magnitude.
    """

    def __init__(self, encoder: Encoder, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        channels = sum(encoder.widths[i] for i in encoder.ends) + encoder.widths[-1]
        self.gain = nn.Linear(encoder.embedding, channels)
        nn.init.zeros_(self.gain.weight)
        nn.init.zeros_(self.gain.bias)
        self.leave = small(nn.Linear(channels, classes))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        features, inner, condition = self.encoder(x, sigma)
        with in_full(inner):
            kind = self.leave.weight.dtype  # full, unless a pipeline was loaded in half precision
            sums = [silu(h.to(kind)).sum((2, 3)) for h in (*(features[i] for i in self.encoder.ends), inner)]
            energy = self.leave(torch.cat(sums, 1) * self.gain(condition.to(kind)).exp())
            return energy - 0.5 * x.square().flatten(1).sum(1, keepdim=True)


HEADS: dict[str, Callable[[Any, int], nn.Module]] = {"energy": EnergyHead, "pooled": PooledHead}


def small(head: nn.Linear) -> nn.Linear:
    """Small first weights, not zero: with zero logits the inner score and every gradient into the trunk would be."""
    nn.init.normal_(head.weight, std=0.01)
    nn.init.zeros_(head.bias)
    return head
