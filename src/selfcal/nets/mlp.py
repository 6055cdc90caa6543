"""A residual MLP that knows σ: enough for points and tiny images, and quick on a CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfcal.nets.layers import FourierFeatures, in_full


class MLP(nn.Module):
    """(B, *), (B,) -> (B, outputs): residual SiLU blocks, each scaled and shifted by σ (FiLM).

    With classes > 0 it also takes y (B,), and −1 means "no class" (the null token of classifier-free
    guidance). SiLU because the classifier is differentiated twice; no normalisation because its
    double backward costs more than the matrix products it stabilises.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 256,
        blocks: int = 3,
        dropout: float = 0.0,
        embedding: int = 64,
        classes: int = 0,
    ) -> None:
        super().__init__()
        features = FourierFeatures()
        self.embed = nn.Sequential(features, nn.Linear(2 * len(features.frequencies), embedding), nn.SiLU())
        self.label = nn.Embedding(classes + 1, embedding) if classes else None
        self.film = nn.Linear(embedding, 2 * width * blocks)
        self.enter = nn.Linear(inputs, width)
        self.first = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.leave = nn.Linear(width, outputs)
        self.dropout = dropout

    def forward(self, x: Tensor, sigma: Tensor, y: Tensor | None = None) -> Tensor:
        condition = self.embed(sigma)
        if self.label is not None:
            assert y is not None, "a class-conditional network needs y"
            condition = condition + self.label(y + 1)
        scales, shifts = self.film(condition).chunk(2, dim=-1)
        h = self.enter(x.flatten(1)).to(self.leave.weight.dtype)  # sums in full, unless the weights are not
        blocks = len(self.first)
        for first, second, scale, shift in zip(
            self.first, self.second, scales.chunk(blocks, -1), shifts.chunk(blocks, -1), strict=True
        ):
            inner = F.silu(first(F.silu(torch.addcmul(shift, h, 1 + scale))))
            h = h + second(F.dropout(inner, self.dropout, self.training))
        with in_full(h):  # what leaves may be logits, and is few numbers
            return self.leave(F.silu(h))


def size(shape: Sequence[int]) -> int:
    """Numbers in one example of this shape."""
    return math.prod(shape)
