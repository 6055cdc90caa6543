"""Density and coverage (Naeem et al. 2020), precision and recall (Kynkäänniemi et al. 2019).

All four ask which points lie inside the balls around a set's points that reach to their k-th
neighbours. Distances come from one matrix product per block of rows, so memory grows with n and not
n²; whatever that product's rounding leaves undecided (ties, duplicates) is decided by exact differences.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.metrics.fid import check_features

ROWS = 256
COLUMNS = 256
SPARE = 8  # candidates beyond the k-th neighbour, for near-ties
PAIRS = 2**8  # pairs decided exactly at a time


def density_coverage(real: Tensor, fake: Tensor, k: int = 5) -> tuple[float, float]:
    """density = mean_j Σ_i [‖f_j − r_i‖ < radius_i] / k,  coverage = mean_i [min_j ‖f_j − r_i‖ < radius_i]."""
    check_features(real=real, fake=fake)
    return Balls(real, k, "real").density_coverage(fake)


def precision_recall(real: Tensor, fake: Tensor, k: int = 5) -> tuple[float, float]:
    """Share of fakes inside some real ball; share of reals inside some fake ball."""
    check_features(real=real, fake=fake)
    precision = Balls(real, k, "real").share_inside(fake)
    return precision, Balls(fake, k, "generated").share_inside(real)


class Balls:
    """A ball around each point, open, reaching to its k-th nearest neighbour among the others."""

    def __init__(self, points: Tensor, k: int, name: str = "real", squared_radius: Tensor | None = None) -> None:
        if not isinstance(k, int) or k < 1:
            raise SelfcalError(f"k = {k}: a whole number of at least one neighbour is needed")
        if len(points) <= k:
            raise SelfcalError(f"{len(points)} {name} examples are too few for k = {k} neighbours; {k + 1} are needed")
        self.k = k
        self.points = points
        # Distances do not change when everything is shifted, rounding errors shrink.
        self.origin = sum(part.double().sum(0) for part in points.split(COLUMNS)) / len(points)
        if squared_radius is None:
            squared_radius = torch.cat([self._radii(start) for start in range(0, len(points), ROWS)])
        self.squared_radius = squared_radius

    def density_coverage(self, others: Tensor) -> tuple[float, float]:
        inside = covered = 0
        for block in self.inside(others):
            inside += int(block.sum())
            covered += int(block.any(1).sum())
        return inside / (self.k * len(others)), covered / len(self.points)

    def share_inside(self, others: Tensor) -> float:
        """How many of the others lie in at least one ball."""
        inside = torch.zeros(len(others), dtype=torch.bool)
        for block in self.inside(others):
            inside |= block.any(0)
        return float(inside.double().mean())

    def inside(self, others: Tensor) -> Iterator[Tensor]:
        """Blocks (rows, others) of: does other j lie in the ball of point i?"""
        for start in range(0, len(self.points), ROWS):
            rows = self.points[start : start + ROWS]
            radius = self.squared_radius[start : start + ROWS, None]
            squared, error = squared_distances(rows, others, self.origin)
            beyond = squared.sub_(radius)
            inside = beyond < 0
            i, j = (beyond.abs_() <= error).nonzero(as_tuple=True)
            for a, b in zip(i.split(PAIRS), j.split(PAIRS), strict=True):
                inside[a, b] = exact_squared(rows[a], others[b]) < radius[a, 0]
            yield inside

    def _radii(self, start: int) -> Tensor:
        """Exact squared distance of each row to its k-th neighbour, itself left out."""
        rows = self.points[start : start + ROWS]
        squared, error = squared_distances(rows, self.points, self.origin)
        me = torch.arange(len(rows))
        squared[me, me + start] = torch.inf
        wide = min(self.k + SPARE, len(self.points) - 1)
        near, index = squared.topk(wide, dim=1, largest=False)
        radius = torch.empty(len(rows), dtype=torch.float64)
        for part in me.split(max(1, PAIRS // wide)):
            exact = exact_squared(rows[part, None], self.points[index[part]])
            radius[part] = exact.kthvalue(self.k, dim=1).values
        # Where even the last candidate could be as near as the k-th, ties go on beyond the list.
        unsure = (near[:, -1] - near[:, self.k - 1] <= 2 * error[:, 0]) & (wide < len(self.points) - 1)
        for r in unsure.nonzero()[:, 0].tolist():
            exact = exact_squared(rows[r], self.points)
            exact[r + start] = torch.inf
            radius[r] = exact.kthvalue(self.k).values
        return radius


def exact_squared(a: Tensor, b: Tensor) -> Tensor:
    """‖a − b‖² by differences: equal pairs of points give equal numbers, whatever stands around them."""
    return (a.double() - b.double()).square().sum(-1)


def squared_distances(rows: Tensor, others: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
    """‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b (rows, others), and a bound (rows, 1) on its rounding error.

    Others are taken block by block, so that no whole copy of them in float64 is ever held.
    """
    a = rows.double() - origin
    aa = a.square().sum(-1)[:, None]
    squared = torch.empty(len(rows), len(others), dtype=torch.float64)
    largest = aa.new_zeros(())
    for start in range(0, len(others), COLUMNS):
        b = others[start : start + COLUMNS].double() - origin
        bb = b.square().sum(-1)
        squared[:, start : start + COLUMNS] = torch.addmm(aa + bb, a, b.T, alpha=-2)
        largest = torch.maximum(largest, bb.max())
    error = 4 * a.shape[1] * torch.finfo(torch.float64).eps * (aa + largest)
    return squared, error
