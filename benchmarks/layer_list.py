"""The original NCSN++ as a plain list of torch's own layers, called one after the other: what ours is timed against.

Song et al. 2021, appendix H: BigGAN blocks with [1 3 3 1] filters, a residual input pyramid, sums over √2,
attention between all pixels, Fourier features of ln σ. Layers are made in the order of `selfcal.nets.ncsnpp`, so
that one network's weights can be put into the other; both must then give the same numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SQRT2 = 2**0.5


def smoothing(channels: int, x: Tensor) -> Tensor:
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0]).to(x)
    window = torch.outer(taps, taps)
    return (window / window.sum()).repeat(channels, 1, 1, 1)


def down(x: Tensor) -> Tensor:
    return F.conv2d(x, smoothing(x.shape[1], x), stride=2, padding=1, groups=x.shape[1])


def up(x: Tensor) -> Tensor:
    return F.conv_transpose2d(x, 4 * smoothing(x.shape[1], x), stride=2, padding=1, groups=x.shape[1])


def group_norm(channels: int) -> nn.GroupNorm:
    groups = min(channels // 4, 32)
    while channels % groups:  # widths that the original never has
        groups -= 1
    return nn.GroupNorm(groups, channels, eps=1e-6)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, embedding: int, dropout: float, resize=None) -> None:
        super().__init__()
        self.resize = resize
        self.norm1, self.conv1 = group_norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.embed = nn.Linear(embedding, outputs)
        self.norm2, self.dropout = group_norm(outputs), nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs or resize else None

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = F.silu(self.norm1(x))
        if self.resize is not None:
            h, x = self.resize(h), self.resize(x)
        h = self.conv1(h) + self.embed(F.silu(embedding))[:, :, None, None]
        h = self.conv2(self.dropout(F.silu(self.norm2(h))))
        if self.skip is not None:
            x = self.skip(x)
        return (x + h) / SQRT2


class Attention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = group_norm(channels)
        self.q, self.k, self.v, self.out = (nn.Linear(channels, channels) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, c, height, width = x.shape
        h = self.norm(x).permute(0, 2, 3, 1)
        q, k, v = self.q(h), self.k(h), self.v(h)
        weights = torch.einsum("bhwc,bijc->bhwij", q, k) * c**-0.5
        weights = weights.reshape(b, height, width, height * width).softmax(-1).reshape(b, height, width, height, width)
        h = self.out(torch.einsum("bhwij,bijc->bhwc", weights, v)).permute(0, 3, 1, 2)
        return (x + h) / SQRT2


class Pyramid(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.conv2d(x, smoothing(x.shape[1], x), padding=2, groups=x.shape[1]))


class LayerList(nn.Module):
    """(B, C, H, W), (B,) -> (B, C, H, W)."""

    def __init__(self, frequencies: Tensor, channels, width, multipliers, blocks, attention, dropout) -> None:
        super().__init__()
        self.register_buffer("frequencies", frequencies)
        embedding = 4 * width
        self.embed = nn.ModuleList([nn.Linear(2 * width, embedding), nn.Linear(embedding, embedding)])
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.down, self.middle, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        made, pyramid = [width], channels
        for level, multiplier in enumerate(multipliers):
            here, outputs = nn.ModuleDict(), width * multiplier
            here["blocks"] = nn.ModuleList()
            for _ in range(blocks):
                here["blocks"].append(Block(made[-1], outputs, embedding, dropout))
                made.append(outputs)
            here["attention"] = nn.ModuleList(Attention(outputs) for _ in range(blocks if level in attention else 0))
            if level + 1 < len(multipliers):
                here["resize"] = Block(outputs, outputs, embedding, dropout, down)
                here["pyramid"] = Pyramid(pyramid, outputs)
                made.append(outputs)
            pyramid = outputs
            self.down.append(here)
        h = made[-1]
        self.middle.extend([Block(h, h, embedding, dropout), Attention(h), Block(h, h, embedding, dropout)])
        for level, multiplier in reversed(list(enumerate(multipliers))):
            here, outputs = nn.ModuleDict(), width * multiplier
            here["blocks"] = nn.ModuleList()
            for _ in range(blocks + 1):
                here["blocks"].append(Block(h + made.pop(), outputs, embedding, dropout))
                h = outputs
            here["attention"] = nn.ModuleList([Attention(h)] if level in attention else [])
            if level:
                here["resize"] = Block(h, h, embedding, dropout, up)
            self.up.append(here)
        self.norm, self.leave = group_norm(h), nn.Conv2d(h, channels, 3, padding=1)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        angles = sigma.log()[:, None] * self.frequencies[None]
        embedding = self.embed[0](torch.cat([angles.sin(), angles.cos()], -1))
        embedding = self.embed[1](F.silu(embedding))
        made, pyramid = [self.enter(x)], x
        for level in self.down:
            for i, block in enumerate(level["blocks"]):
                h = block(made[-1], embedding)
                made.append(level["attention"][i](h) if len(level["attention"]) else h)
            if "resize" in level:
                pyramid = (level["pyramid"](pyramid) + level["resize"](made[-1], embedding)) / SQRT2
                made.append(pyramid)
        h = self.middle[0](made[-1], embedding)
        h = self.middle[2](self.middle[1](h), embedding)
        for level in self.up:
            for block in level["blocks"]:
                h = block(torch.cat([h, made.pop()], 1), embedding)
            for attention in level["attention"]:
                h = attention(h)
            if "resize" in level:
                h = level["resize"](h, embedding)
        return self.leave(F.silu(self.norm(h)))


def same_network(ours: nn.Module, **keywords) -> LayerList:
    """With the very weights of one of ours, and checked to give the same numbers and gradients."""
    other = LayerList(ours.encoder.features.frequencies, **keywords)
    mine, theirs = list(ours.parameters()), list(other.parameters())
    assert [p.shape for p in mine] == [p.shape for p in theirs]
    with torch.no_grad():
        for a, b in zip(mine, theirs, strict=True):
            b.copy_(a)
    x, sigma = torch.randn(2, keywords["channels"], 32, 32), torch.tensor([0.1, 2.0])
    ours.eval(), other.eval()
    torch.testing.assert_close(ours(x, sigma), other(x, sigma), rtol=1e-4, atol=1e-5)
    ours.train(), other.train()
    return other
