"""Kernel distance (Bińkowski et al. 2018): unlike FID, unbiased at every sample count."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.metrics.fid import check_features

ROWS = 512
MOST_PAIRED = 10_000  # examples beyond which their own mean is that of subsets, where it would take all pairs
SUBSET = 1000


def kid(real: Tensor, fake: Tensor) -> float:
    """Unbiased squared MMD with the kernel (x·y/d + 1)³, over all pairs; may be slightly negative."""
    check_features(real=real, fake=fake)
    real, fake = real.double(), fake.double()
    n, m = len(real), len(fake)
    own = float(mean_of_pairs(real)) + float(mean_of_pairs(fake))
    return own - 2 * float(kernel_rows(fake, real).sum()) / (n * m)


def mean_of_pairs(x: Tensor) -> Tensor:
    """k(x_i, x_j) in the mean over i ≠ j, of float64 features (N, D): (), exact."""
    n = len(x)
    whole = _sum_by_moments(x) if _moments_are_cheaper(x) else kernel_rows(x, x).sum()
    return (whole - diagonal(x).sum()) / (n * (n - 1))


def mean_of_pairs_in_subsets(x: Tensor) -> Tensor:
    """The same without bias, over pairs within disjoint subsets of SUBSET examples chosen at random."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    parts = [x[pick] for pick in order.split(SUBSET) if len(pick) == SUBSET]
    return torch.stack([mean_of_pairs(part) for part in parts]).mean()


def is_for_subsets(x: Tensor) -> bool:
    """Whether all pairs would take too long: the literature's estimator is then the mean over subsets."""
    return len(x) > MOST_PAIRED and not _moments_are_cheaper(x)


def _moments_are_cheaper(x: Tensor) -> bool:
    return x.shape[1] ** 2 < len(x)


def _sum_by_moments(x: Tensor) -> Tensor:
    """Σ_ij (x_i·x_j/d + 1)³ without pairs: Σ_ij (x_i·x_j)^p is the squared norm of Σ_i x_i ⊗ … ⊗ x_i (p times)."""
    n, d = x.shape
    third = x.new_zeros(d, d * d)
    second, first = x.T @ x, x.sum(0)
    for part in x.split(max(1, 2**22 // d**2)):
        third += part.T @ (part[:, :, None] * part[:, None, :]).flatten(1)
    squares = [v.square().sum() / d**p for p, v in enumerate((first, second, third), 1)]
    return n**2 + 3 * squares[0] + 3 * squares[1] + squares[2]


def kernel_rows(a: Tensor, b: Tensor) -> Tensor:
    """Σ_j k(a_i, b_j) for every row of a, (N,), block by block."""
    return torch.cat([(rows @ b.T / b.shape[1] + 1).pow(3).sum(1) for rows in a.split(ROWS)])


def diagonal(a: Tensor) -> Tensor:
    """k(a_i, a_i) for every row, (N,)."""
    return (a.square().sum(-1) / a.shape[1] + 1).pow(3)
