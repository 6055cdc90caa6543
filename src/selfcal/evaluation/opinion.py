"""What the guide thinks of images, also when they carry noise: a guide may be right on clean images and wrong, or sure
without a reason, at the noise where it steers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from selfcal.diffusion.generator import Generator


def opinions(generator: Generator, x: Tensor, sigmas: Sequence[float], draws: int = 8, seed: int = 0) -> Tensor:
    """E_z p(y | x + σ z, σ) of every image and σ, (S, B, K), over so many draws of z.

    x (B, *) in the data's units, without noise.
    """
    rng = torch.Generator().manual_seed(seed)
    levels = []
    for sigma in sigmas:
        total = torch.zeros(len(x), len(generator.classes), dtype=torch.float64)
        for _ in range(draws):
            total += generator.predict_proba(x + sigma * torch.randn(x.shape, generator=rng), sigma)
        levels.append(total / draws)
    return torch.stack(levels)
