"""Kernel distance (Bińkowski et al. 2018): unlike FID, unbiased at every sample count."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.metrics.fid import check_features

ROWS = 512


def kid(real: Tensor, fake: Tensor) -> float:
    """Unbiased squared MMD with the kernel (x·y/d + 1)³, over all pairs; may be slightly negative."""
    check_features(real=real, fake=fake)
    real, fake = real.double(), fake.double()
    n, m = len(real), len(fake)
    within_real = (float(kernel_rows(real, real).sum()) - float(diagonal(real).sum())) / (n * (n - 1))
    within_fake = (float(kernel_rows(fake, fake).sum()) - float(diagonal(fake).sum())) / (m * (m - 1))
    return within_real + within_fake - 2 * float(kernel_rows(fake, real).sum()) / (n * m)


def kernel_rows(a: Tensor, b: Tensor) -> Tensor:
    """Σ_j k(a_i, b_j) for every row of a, (N,), block by block."""
    return torch.cat([(rows @ b.T / b.shape[1] + 1).pow(3).sum(1) for rows in a.split(ROWS)])


def diagonal(a: Tensor) -> Tensor:
    """k(a_i, a_i) for every row, (N,)."""
    return (a.square().sum(-1) / a.shape[1] + 1).pow(3)
