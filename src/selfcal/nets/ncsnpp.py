"""NCSN++ (Song et al. 2021), the paper's U-Net: its encoder, shared with the classifier, and the way back up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from selfcal.nets.blocks import (
    HALF_POWER,
    NEARLY_ZERO,
    Attention,
    HalvingConv,
    ResidualBlock,
    conv,
    double,
    halve,
    norm,
    spread_evenly,
)
from selfcal.nets.layers import FourierFeatures
from selfcal.nets.second_derivatives import SiLU, differentiated_once

FEW_CHANNELS = 64  # below it a CPU's convolutions are up to twice as quick with channels last in memory


class DownLevel(nn.Module):
    """The blocks of one resolution; every level but the last then halves it and adds the input pyramid."""

    def __init__(
        self, inputs: int, outputs: int, pyramid: int | None, embedding: int, blocks: int, attends: bool, dropout: float
    ) -> None:
        super().__init__()
        widths = [inputs] + [outputs] * blocks
        self.blocks = nn.ModuleList(ResidualBlock(widths[i], outputs, embedding, dropout) for i in range(blocks))
        self.attention = nn.ModuleList(Attention(outputs) for _ in range(blocks if attends else 0))
        self.down = self.pyramid = None
        if pyramid is not None:
            self.down = ResidualBlock(outputs, outputs, embedding, dropout, halve)
            self.pyramid = HalvingConv(pyramid, outputs)

    def forward(self, h: Tensor, pyramid: Tensor, condition: Tensor) -> tuple[list[Tensor], Tensor]:
        """All it makes on the way, the last of which goes on, and the pyramid for the next level."""
        features = []
        for i, block in enumerate(self.blocks):
            h = block(h, condition)
            h = self.attention[i](h) if self.attention else h
            features.append(h)
        if self.down is not None and self.pyramid is not None:
            pyramid = self.pyramid(pyramid).add_(self.down(h, condition)).mul_(HALF_POWER)
            features.append(pyramid)
        return features, pyramid


class UpLevel(nn.Module):
    """One block more than on the way down, each joined by what was made there; all but the last then double."""

    def __init__(
        self, inputs: int, skips: Sequence[int], outputs: int, embedding: int, attends: bool, up: bool, dropout: float
    ) -> None:
        super().__init__()
        widths = [inputs] + [outputs] * len(skips)
        self.blocks = nn.ModuleList(
            ResidualBlock(widths[i] + skip, outputs, embedding, dropout) for i, skip in enumerate(skips)
        )
        self.attention = Attention(outputs) if attends else None
        self.up = ResidualBlock(outputs, outputs, embedding, dropout, double) if up else None

    def forward(self, h: Tensor, features: list[Tensor], condition: Tensor) -> Tensor:
        for block in self.blocks:
            h = block(torch.cat([h, features.pop()], 1), condition)
        h = h if self.attention is None else self.attention(h)
        return h if self.up is None else self.up(h, condition)


class Encoder(nn.Module):
    """(B, C, H, W), (B,) -> all it makes on the way down, the innermost features, what is known of σ and y.

    width: channels at full resolution, times the `multipliers` at each halving. attention: the levels
    that attend, 0 being full resolution; the middle always does. With classes > 0 it also takes
    y (B,), and −1 means "no class".
    """

    def __init__(
        self,
        channels: int = 3,
        *,
        width: int = 128,
        multipliers: Sequence[int] = (1, 2, 2, 2),
        blocks: int = 4,
        attention: Sequence[int] = (1,),
        dropout: float = 0.1,
        fourier_scale: float = 16.0,
        classes: int = 0,
    ) -> None:
        super().__init__()
        embedding, last = 4 * width, len(multipliers) - 1
        self.embedding = embedding  # length of what is known of σ and y
        self.ends = [level * (blocks + 1) + blocks for level in range(last + 1)]  # each resolution's last features
        self.features = FourierFeatures(width, scale=2 * math.pi * fourier_scale)
        self.embed = nn.Sequential(
            spread_evenly(nn.Linear(2 * width, embedding)),
            nn.SiLU(),
            spread_evenly(nn.Linear(embedding, embedding)),
        )
        self.silu = SiLU()
        self.label = nn.Embedding(classes + 1, embedding) if classes else None
        self.enter = conv(channels, width)
        self.levels = nn.ModuleList()
        self.widths = [width]  # channels of everything made on the way down
        pyramid = channels
        for level, multiplier in enumerate(multipliers):
            inputs, outputs, goes_on = self.widths[-1], width * multiplier, level < last
            entry = pyramid if goes_on else None
            self.levels.append(DownLevel(inputs, outputs, entry, embedding, blocks, level in attention, dropout))
            self.widths += [outputs] * (blocks + goes_on)
            pyramid = outputs
        inner = self.widths[-1]
        around = [ResidualBlock(inner, inner, embedding, dropout), Attention(inner)]
        self.middle = nn.ModuleList([*around, ResidualBlock(inner, inner, embedding, dropout)])

    def forward(self, x: Tensor, sigma: Tensor, y: Tensor | None = None) -> tuple[list[Tensor], Tensor, Tensor]:
        condition = self.embed(self.features(sigma))
        if self.label is not None:
            assert y is not None, "a class-conditional network needs y"
            condition = condition + self.label(y + 1)
        condition = self.silu(condition)
        features, pyramid = [self.enter(x)], x
        for level in self.levels:
            more, pyramid = level(features[-1], pyramid, condition)
            features += more
        first, attention, second = self.middle
        return features, second(attention(first(features[-1], condition)), condition), condition


class NCSNpp(nn.Module):
    """(B, C, H, W), (B,) -> (B, C, H, W). The defaults are the paper's for CIFAR-10; 8 blocks are its deep one."""

    def __init__(
        self,
        channels: int = 3,
        *,
        width: int = 128,
        multipliers: Sequence[int] = (1, 2, 2, 2),
        blocks: int = 4,
        attention: Sequence[int] = (1,),
        dropout: float = 0.1,
        fourier_scale: float = 16.0,
        classes: int = 0,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(
            channels,
            width=width,
            multipliers=multipliers,
            blocks=blocks,
            attention=attention,
            dropout=dropout,
            fourier_scale=fourier_scale,
            classes=classes,
        )
        skips, h = list(self.encoder.widths), self.encoder.widths[-1]
        self.levels = nn.ModuleList()
        for level, multiplier in reversed(list(enumerate(multipliers))):
            outputs, taken = width * multiplier, [skips.pop() for _ in range(blocks + 1)]
            self.levels.append(UpLevel(h, taken, outputs, 4 * width, level in attention, level > 0, dropout))
            h = outputs
        self.norm, self.silu = norm(h), SiLU()
        self.leave = conv(h, channels, scale=NEARLY_ZERO)
        self.channels_last = width < FEW_CHANNELS
        differentiated_once(self)

    def forward(self, x: Tensor, sigma: Tensor, y: Tensor | None = None) -> Tensor:
        if self.channels_last and x.device.type == "cpu":
            x = x.contiguous(memory_format=torch.channels_last)
        features, h, condition = self.encoder(x, sigma, y)
        for level in self.levels:
            h = level(h, features, condition)
        return self.leave(self.silu(self.norm(h)))
