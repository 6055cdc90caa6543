"""Metrics with the real images' side computed once, and each group of samples left out in turn at little more cost.

Every side is made of real features and then called with fake ones and their groups: it returns the metric of all
fakes, and of all but each group: (1 + groups,) values, the same as those of the functions in metrics/. What the groups
share is summed once; leaving one out subtracts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from selfcal.metrics.fid import check_features
from selfcal.metrics.kid import diagonal, is_for_subsets, kernel_rows, mean_of_pairs, mean_of_pairs_in_subsets
from selfcal.metrics.prdc import Balls

PART = 4096  # real images that are held in float64 at a time


@dataclass(frozen=True)
class Groups:
    """The group of each sample (N,), and how many groups there are; a single one stands for no leaving out at all."""

    of: Tensor
    count: int

    @classmethod
    def in_turn(cls, samples: int, count: int) -> Groups:
        return cls(torch.arange(samples) % count, count)

    def among(self, mask: Tensor) -> Groups:
        return Groups(self.of[mask], self.count)

    def masks(self) -> list[Tensor]:
        """(N,): all, then all but each group."""
        each = range(self.count if self.count > 1 else 0)
        return [torch.ones_like(self.of, dtype=torch.bool), *(self.of != g for g in each)]

    def sums(self, values: Tensor) -> Tensor:
        """Of values (N, *), in each group: (groups, *)."""
        return values.new_zeros(self.count, *values.shape[1:]).index_add_(0, self.of, values)

    def sizes(self) -> Tensor:
        return without_each(torch.bincount(self.of, minlength=self.count))


def without_each(sums: Tensor) -> Tensor:
    """Of sums by group (groups, *): over all, and over all but each (1 + groups, *)."""
    whole = sums.sum(0, keepdim=True)
    return torch.cat([whole, whole - sums]) if len(sums) > 1 else whole


class Frechet:
    """‖μ − m‖² + Tr Σ + Tr S − 2 Tr √(Σ S); with Σ = L Lᵀ the last is the sum of roots of Lᵀ S L's eigenvalues."""

    def __init__(self, real: Tensor, known: Mapping[str, Tensor] | None = None) -> None:
        """known: what `known` of another one returned for the same images."""
        check_features(real=real)
        if known is not None:
            self.mean, self.factor, self.trace = (known[name] for name in ("mean", "factor", "trace"))
            return
        self.mean = sum((part.double().sum(0) for part in real.split(PART)), real.new_zeros((), dtype=torch.float64))
        self.mean /= len(real)
        if len(real) <= real.shape[1]:  # the images themselves are such an L, and a smaller one
            self.factor = ((real.double() - self.mean) / (len(real) - 1) ** 0.5).T
            self.trace = self.factor.square().sum()
            return
        covariance = real.new_zeros(real.shape[1], real.shape[1], dtype=torch.float64)
        for part in real.split(PART):
            centred = part.double() - self.mean
            covariance.addmm_(centred.T, centred)
        covariance /= len(real) - 1
        self.trace = covariance.trace()
        values, vectors = torch.linalg.eigh(covariance)
        self.factor = vectors * values.clamp(min=0).sqrt()

    @property
    def known(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "factor": self.factor, "trace": self.trace}

    def __call__(self, fake: Tensor, groups: Groups) -> Tensor:
        check_features(fake=fake)
        x = fake.double() - self.mean
        return torch.stack([self._distance(x[mask]) for mask in groups.masks()])

    def _distance(self, x: Tensor) -> Tensor:
        if len(x) < 2:  # what is left of a small class has no spread
            return x.new_full((), torch.nan)
        mean = x.mean(0)
        centred = (x - mean) / (len(x) - 1) ** 0.5
        turned = centred @ self.factor
        gram = turned @ turned.T if len(turned) < turned.shape[1] else turned.T @ turned
        roots = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt().sum()
        return (mean.square().sum() + self.trace + centred.square().sum() - 2 * roots).clamp(min=0)


class Kernel:
    """The unbiased squared MMD of `metrics.kid`. within: the real images' own mean, if it is known already."""

    def __init__(self, real: Tensor, within: Tensor | None = None) -> None:
        check_features(real=real)
        self.real = real
        self.within = self._own_mean() if within is None else within

    def _own_mean(self) -> Tensor:
        x = self.real.double()
        return mean_of_pairs_in_subsets(x) if is_for_subsets(x) else mean_of_pairs(x)

    def __call__(self, fake: Tensor, groups: Groups) -> Tensor:
        check_features(fake=fake)
        x, n = fake.double(), len(self.real)
        counts = groups.sizes()
        rows = sum((kernel_rows(x, part.double()) for part in self.real.split(PART)), x.new_zeros(()))
        across = without_each(groups.sums(rows))
        parts = torch.stack([kernel_rows(x, x[groups.of == g]) for g in range(groups.count)], 1)
        pairs = groups.sums(parts) - groups.sums(diagonal(x)).diag()  # sums over pairs of groups
        own = pairs.sum()[None]
        if len(pairs) > 1:
            own = torch.cat([own, own - pairs.sum(0) - pairs.sum(1) + pairs.diagonal()])
        return self.within + own / (counts * (counts - 1)) - 2 * across / (n * counts)


class Neighbourhoods:
    """(density, coverage), (1 + groups, 2), in balls that reach to real points' k-th neighbours."""

    def __init__(self, real: Tensor, k: int, squared_radius: Tensor | None = None) -> None:
        check_features(real=real)
        self.balls = Balls(real, k, squared_radius=squared_radius)

    def __call__(self, fake: Tensor, groups: Groups) -> Tensor:
        check_features(fake=fake)
        counts, member = groups.sizes(), F.one_hot(groups.of, groups.count).float()
        inside, covered = torch.zeros(len(counts)).double(), torch.zeros(len(counts)).double()
        for block in self.balls.inside(fake):
            fakes = without_each((block.float() @ member).T)  # (1 + groups, rows): how many lie in each ball
            inside += fakes.double().sum(1)
            covered += (fakes > 0).double().sum(1)
        return torch.stack([inside / (self.balls.k * counts), covered / len(self.balls.points)], 1)
