"""The Fréchet distance between two sets of features, without a matrix square root."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError


def check_features(**sets: Tensor) -> None:
    """Every set (N, D) with N ≥ 2, finite, of one D."""
    for name, features in sets.items():
        if not isinstance(features, Tensor):
            raise SelfcalError(f"{name} features are a {type(features).__name__}; expected a torch tensor")
        if features.ndim != 2:
            raise SelfcalError(f"{name} features are shaped {tuple(features.shape)}; expected (examples, dimensions)")
        if len(features) < 2:
            raise SelfcalError(f"{name} has {len(features)} example(s); at least 2 are needed")
        if not all(torch.isfinite(part).all() for part in features.split(1024)):  # in parts: a mask is large too
            raise SelfcalError(f"{name} features hold NaN or infinite values")
    if len({f.shape[1] for f in sets.values()}) > 1:
        raise SelfcalError("features have different dimensions: they come from different extractors")


def fid(real: Tensor, fake: Tensor) -> float:
    """‖μ_r − μ_f‖² + Tr(Σ_r + Σ_f − 2 (Σ_r Σ_f)^½), float64.

    With A and B the centred features over √(n−1), Tr (Σ_r Σ_f)^½ is the sum of the singular values
    of A Bᵀ. Reducing each by QR to its R factor first keeps that matrix as small as min(n, d) allows.
    """
    check_features(real=real, fake=fake)
    real, fake = real.double(), fake.double()
    shift = (real.mean(0) - fake.mean(0)).square().sum()
    a, b = _root(real), _root(fake)
    cross = torch.linalg.svdvals(a @ b.T).sum()
    value = shift + a.square().sum() + b.square().sum() - 2 * cross
    return max(0.0, float(value))


def _root(features: Tensor) -> Tensor:
    """R with RᵀR = Σ, of min(n, d) rows."""
    centred = (features - features.mean(0)) / (len(features) - 1) ** 0.5
    return torch.linalg.qr(centred, mode="r").R if len(centred) > centred.shape[1] else centred
