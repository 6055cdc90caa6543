"""Which images to label next: those that stand for many others of which the guide is unsure."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.core.bounds import check_seed, check_whole
from selfcal.core.errors import SelfcalError
from selfcal.data.pixels import Examples
from selfcal.diffusion.generator import Generator
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.guide import draws_and_images
from selfcal.evaluation.opinion import opinions

LOUDEST = 1.0  # σ up to which the guide is asked: half the range of the data, where classes can still be told
LEVELS, DRAWS = 4, 4
MOST_SUGGESTED = 10**4  # each is held against all others
SURE = 0.2  # what an image weighs of which the guide is sure, beside 1.2 of one without an opinion: it may be wrong


def suggest(generator: Generator, x: Examples, labels: Tensor, count: int, seed: int = 0) -> Tensor:
    """Positions of `count` unlabelled images of x (N, *), the most telling first; see `most_telling`.

    labels (N,), UNLABELED where nobody knows. How an image looks is its pixels and the guide's opinion of it, in equal
    shares; how unsure the guide is, is the doubt of its opinion averaged over noise, since on clean images few labels
    make it sure of nearly everything. Of a large pile some of the unlabelled are looked at, drawn by the seed.
    """
    check_whole("--count", count, 1, MOST_SUGGESTED)
    check_seed(seed)
    known, free = (labels != UNLABELED).nonzero()[:, 0], (labels == UNLABELED).nonzero()[:, 0]
    if not len(free):
        raise SelfcalError("every image has a label already; there is nothing to suggest")
    order = torch.randperm(len(free), generator=torch.Generator().manual_seed(seed))
    most = draws_and_images(generator.shape)[0]
    looked_at = torch.cat([known[:most], free[order[: max(count, most)]].sort().values])
    images, labelled = x[looked_at], labels[looked_at] != UNLABELED
    sigmas = torch.logspace(-1, 0, LEVELS).mul(LOUDEST).tolist()
    thought = opinions(generator, images, sigmas, DRAWS, seed)
    features = torch.cat([spread_one(images.flatten(1)), spread_one(thought.movedim(0, 1).flatten(1))], 1).float()
    return looked_at[most_telling(features, SURE + doubt(thought.mean(0)), labelled, count)]


def most_telling(features: Tensor, unsure: Tensor, labelled: Tensor, count: int) -> Tensor:
    """Positions of `count` examples, the most telling first.

    With u_i ≥ 0 how unsure the guide is of example i and f_i what it looks like, a set S of examples leaves

        R(S) = Σ_i u_i min_{j ∈ L ∪ S} ‖f_i − f_j‖²

    unexplained, L being the labelled ones: doubts that are far from every label. Each choice is the one that
    lowers R most: sure ones weigh little (uncertainty), what lies near a label or an earlier choice has been
    explained already (diversity), and an odd one out explains only itself (so it comes late). The gain of a set is
    submodular, so that this greedy choice is at least 1 − 1/e of the best (Nemhauser, Wolsey and Fisher 1978).

    features (N, D); unsure (N,); labelled (N,) of truth values; fewer than `count` where fewer are unlabelled.
    """
    distances = torch.cdist(features, features).square()
    weights, free = unsure.to(distances), ~labelled
    left = distances[:, labelled].amin(1) if labelled.any() else distances.amax(1)
    picked: list[int] = []
    for _ in range(min(count, int(free.sum()))):
        gain = weights @ (left[:, None] - distances).clamp(min=0)
        best = int(gain.masked_fill(~free, -torch.inf).argmax())
        picked.append(best)
        free[best] = False
        left = torch.minimum(left, distances[:, best])
    return torch.tensor(picked, dtype=torch.long)


def doubt(probabilities: Tensor) -> Tensor:
    """How unsure a guide is, (..., K) -> (...): the entropy of its opinion as a part of the largest, in [0, 1]."""
    p = probabilities.double()
    entropy: Tensor = torch.special.entr(p).sum(-1) / torch.tensor(float(p.shape[-1])).log()
    return entropy.clamp(0, 1)


def spread_one(features: Tensor) -> Tensor:
    """(N, D) with a total variance of 1, so that kinds of features can be put side by side."""
    values = features.double()
    total = values.var(0, unbiased=False).sum().sqrt()
    return values / total if total > 0 else values
