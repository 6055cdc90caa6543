"""Density and coverage (Naeem et al. 2020), precision and recall (Kynkäänniemi et al. 2019).

All four ask which points lie inside the balls around a set's points that reach to their k-th
neighbours. Distances come from one matrix product per block of rows, so memory grows with n and not
n²; whatever that product's rounding leaves undecided (ties, duplicates) is decided by exact differences.
Neighbours are looked for in float32, where distances need only be near enough to tell candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.metrics.fid import check_features

ROWS = 256
COLUMNS = 256
SPARE = 8  # candidates beyond the k-th neighbour, for near-ties
PAIRS = 2**8  # pairs decided exactly at a time
TILE = 4096  # points to a side of a block of pairs, when neighbours are looked for among all of them


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

    def __init__(
        self,
        points: Tensor,
        k: int,
        name: str = "real",
        squared_radius: Tensor | None = None,
        tick: Callable[[int], None] = lambda pairs: None,
    ) -> None:
        if not isinstance(k, int) or k < 1:
            raise SelfcalError(f"k = {k}: a whole number of at least one neighbour is needed")
        if len(points) <= k:
            raise SelfcalError(f"{len(points)} {name} examples are too few for k = {k} neighbours; {k + 1} are needed")
        self.k = k
        self.points = points
        # Distances do not change when everything is shifted, rounding errors shrink.
        self.origin = sum(part.double().sum(0) for part in points.split(COLUMNS)) / len(points)
        self.squared_radius = self._radii(tick) if squared_radius is None else squared_radius

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

    def _radii(self, tick: Callable[[int], None]) -> Tensor:
        """Exact squared distance of each point to its k-th neighbour, itself left out.

        Candidates come from a rough search; where it cannot exclude that a nearer one was missed, from a finer one.
        """
        wide = min(self.k + SPARE, len(self.points) - 1)
        near, index, error = nearest(self.points, self.origin, wide, tick)
        radius = self._of_candidates(torch.arange(len(self.points)), index)
        if wide < len(self.points) - 1:
            unsure = (~(near[:, -1] - near[:, self.k - 1] > 2 * error)).nonzero()[:, 0]
            for rows in unsure.split(ROWS):
                radius[rows] = self._finer(rows, wide)
        return radius

    def _finer(self, rows: Tensor, wide: int) -> Tensor:
        """The same in float64; where even the last candidate could be as near as the k-th, ties go on beyond them."""
        squared, error = squared_distances(self.points[rows], self.points, self.origin)
        squared[torch.arange(len(rows)), rows] = torch.inf
        near, index = squared.topk(wide, dim=1, largest=False)
        radius = self._of_candidates(rows, index)
        unsure = ~(near[:, -1] - near[:, self.k - 1] > 2 * error[:, 0])
        for r in unsure.nonzero()[:, 0].tolist():
            exact = exact_squared(self.points[rows[r]], self.points)
            exact[rows[r]] = torch.inf
            radius[r] = exact.kthvalue(self.k).values
        return radius

    def _of_candidates(self, rows: Tensor, index: Tensor) -> Tensor:
        radius = torch.empty(len(rows), dtype=torch.float64)
        for part in torch.arange(len(rows)).split(max(1, PAIRS // index.shape[1])):
            exact = exact_squared(self.points[rows[part], None], self.points[index[part]])
            radius[part] = exact.kthvalue(self.k, dim=1).values
        return radius


def nearest(
    points: Tensor, origin: Tensor, count: int, tick: Callable[[int], None] = lambda pairs: None
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each point the `count` others that look nearest in float32: squared distances and positions (N, count), and
    a bound (N,) on the distances' rounding errors. Each pair is computed once, for both its ends."""
    x = torch.cat([(part.double() - origin).float() for part in points.split(TILE)])
    norms = x.double().square().sum(1)
    error = (x.shape[1] + 8) * torch.finfo(torch.float32).eps * (norms + norms.max())
    norms, found = norms.float(), Candidates(len(x), count)
    for a in range(0, len(x), TILE):
        for b in range(a, len(x), TILE):
            rows, columns = x[a : a + TILE], x[b : b + TILE]
            tile = torch.addmm(norms[None, b : b + TILE], rows, columns.T, alpha=-2).add_(norms[a : a + TILE, None])
            if a == b:
                tile.fill_diagonal_(torch.inf)
            else:
                found.add(b, tile.T.contiguous(), a)
            found.add(a, tile, b)
            tick(tile.numel())
    return found.near, found.index, error


def pairs_of(points: int) -> int:
    """How many pairs `nearest` looks at: those of every two blocks, once."""
    whole, rest = divmod(points, TILE)
    sizes = [TILE] * whole + [rest] * (rest > 0)
    return (points**2 + sum(size**2 for size in sizes)) // 2


class Candidates:
    """The nearest found so far of each of `points` points."""

    def __init__(self, points: int, count: int) -> None:
        self.near = torch.full((points, count), torch.inf)
        self.index = torch.zeros(points, count, dtype=torch.long)

    def add(self, row: int, squared: Tensor, column: int) -> None:
        """Distances of points from `row` on (rows, columns) to those from `column` on."""
        rows, count = slice(row, row + len(squared)), self.near.shape[1]
        near, index = squared.topk(min(count, squared.shape[1]), dim=1, largest=False)
        near, index = torch.cat([self.near[rows], near], 1), torch.cat([self.index[rows], index + column], 1)
        self.near[rows], best = near.topk(count, dim=1, largest=False)
        self.index[rows] = index.gather(1, best)


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
