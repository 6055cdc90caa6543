"""Density and coverage (Naeem et al. 2020): is what was made real, and is all that is real made?"""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.errors import SelfcalError
from selfcal.metrics.fid import check_features

CHUNK = 1024


def density_coverage(real: Tensor, fake: Tensor, k: int = 5) -> tuple[float, float]:
    """With r_i the distance of real point i to its k-th real neighbour:

    density = mean_j Σ_i [‖f_j − r_i‖ < r_i] / k,  coverage = mean_i [min_j ‖f_j − r_i‖ < r_i].
    Distances in chunks of rows: memory grows with n, not n².
    """
    check_features(real=real, fake=fake)
    if len(real) <= k:
        raise SelfcalError(f"{len(real)} real examples are too few for k = {k} neighbours; at least {k + 1} are needed")
    real, fake = real.double(), fake.double()
    inside, covered = 0, 0
    for rows in real.split(CHUNK):
        to_real = torch.cdist(rows, real, compute_mode="donot_use_mm_for_euclid_dist")
        radius = to_real.kthvalue(k + 1, dim=1).values[:, None]  # the nearest of all is the point itself
        close = torch.cdist(rows, fake, compute_mode="donot_use_mm_for_euclid_dist") < radius
        inside += int(close.sum())
        covered += int(close.any(1).sum())
    return inside / (k * len(fake)), covered / len(real)
