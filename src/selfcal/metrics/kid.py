"""Kernel distance (Bińkowski et al. 2018): unlike FID, unbiased at every sample count."""

from __future__ import annotations

from torch import Tensor

from selfcal.metrics.fid import check_features

ROWS = 2048


def kid(real: Tensor, fake: Tensor) -> float:
    """Unbiased squared MMD with the kernel (x·y/d + 1)³, over all pairs; may be slightly negative."""
    check_features(real=real, fake=fake)
    real, fake = real.double(), fake.double()
    n, m = len(real), len(fake)
    within_real = (_total(real, real) - _diagonal(real)) / (n * (n - 1))
    within_fake = (_total(fake, fake) - _diagonal(fake)) / (m * (m - 1))
    return within_real + within_fake - 2 * _total(real, fake) / (n * m)


def _total(a: Tensor, b: Tensor) -> float:
    return sum(float((rows @ b.T / b.shape[1] + 1).pow(3).sum()) for rows in a.split(ROWS))


def _diagonal(a: Tensor) -> float:
    return float((a.square().sum(-1) / a.shape[1] + 1).pow(3).sum())
