"""The blocks NCSN++ is made of (Song et al. 2021, appendix H), smooth and twice differentiable.

Every sum of two paths is divided by √2, so that depth does not raise the variance; the last
convolution of each block starts almost at zero, so that a fresh block passes its input on.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfcal.nets.second_derivatives import Conv, GroupNorm, SiLU, convolve

NEARLY_ZERO = 1e-10
HALF_POWER = math.sqrt(0.5)


def spread_evenly(layer: nn.Conv2d | nn.Linear, scale: float = 1.0) -> nn.Module:
    """Uniform weights of variance scale / mean of fan-in and fan-out; no bias. Returns the layer."""
    outputs, inputs, *window = layer.weight.shape
    mean_fan = math.prod(window) * (outputs + inputs) / 2
    nn.init.uniform_(layer.weight, -math.sqrt(3 * scale / mean_fan), math.sqrt(3 * scale / mean_fan))
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def conv(inputs: int, outputs: int, size: int = 3, scale: float = 1.0) -> nn.Module:
    return spread_evenly(Conv(inputs, outputs, size, padding=size // 2), scale)


def norm(channels: int) -> GroupNorm:
    """Groups of at least four channels, at most 32 of them."""
    groups = next(g for g in range(min(max(channels // 4, 1), 32), 0, -1) if channels % g == 0)
    return GroupNorm(groups, channels, eps=1e-6)


def binomial(x: Tensor) -> Tensor:
    """The smoothing filter [1 3 3 1] ⊗ [1 3 3 1] / 64, once for every channel of x."""
    taps = x.new_tensor([1.0, 3.0, 3.0, 1.0]) / 8
    return torch.outer(taps, taps).expand(x.shape[1], 1, 4, 4)


def halve(x: Tensor) -> Tensor:
    """Smooth, then keep every second pixel."""
    return convolve(x, binomial(x), stride=2, padding=1, groups=x.shape[1])


def double(x: Tensor) -> Tensor:
    """A zero after every pixel, then smooth; the factor keeps the mean."""
    return F.conv_transpose2d(x, 4 * binomial(x), stride=2, padding=1, groups=x.shape[1])


class HalvingConv(nn.Module):
    """Smooth, then a 3×3 convolution at every second pixel: a step down the input pyramid."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = spread_evenly(Conv(inputs, outputs, 3, stride=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(convolve(x, binomial(x), padding=2, groups=x.shape[1]))


class ResidualBlock(nn.Module):
    """Two normalised convolutions beside a skip, shifted by what is known of σ; may halve or double the size."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        embedding: int,
        dropout: float = 0.0,
        resize: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.resize, self.silu = resize, SiLU()
        self.first_norm = norm(inputs)
        self.first = conv(inputs, outputs)
        self.shift = spread_evenly(nn.Linear(embedding, outputs))
        self.second_norm = norm(outputs)
        self.dropout = nn.Dropout(dropout)
        self.second = conv(outputs, outputs, scale=NEARLY_ZERO)
        self.skip = conv(inputs, outputs, 1) if inputs != outputs or resize else None

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        h = self.silu(self.first_norm(x))
        if self.resize is not None:
            h, x = self.resize(h), self.resize(x)
        h = self.first(h).add_(self.shift(condition)[..., None, None])
        h = self.second(self.dropout(self.silu(self.second_norm(h))))
        return h.add_(x if self.skip is None else self.skip(x)).mul_(HALF_POWER)


class Attention(nn.Module):
    """Every pixel looks at every other. Written out: fused kernels have no second derivative."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = norm(channels)
        self.query, self.key, self.value = (spread_evenly(nn.Linear(channels, channels), scale=0.1) for _ in range(3))
        self.leave = spread_evenly(nn.Linear(channels, channels), scale=NEARLY_ZERO)

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.norm(x).flatten(2).transpose(1, 2).contiguous()  # (B, HW, C)
        q, k, v = self.query(pixels) * x.shape[1] ** -0.5, self.key(pixels), self.value(pixels)
        view = (q @ k.transpose(1, 2)).softmax(-1) @ v
        return (x + self.leave(view).transpose(1, 2).reshape(x.shape)).mul_(HALF_POWER)
