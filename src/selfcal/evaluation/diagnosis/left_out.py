"""Labels that the other labels contradict: each is left out in turn, and spreads back from the rest through the pile.

A guide that has seen a wrong label repeats it, so it cannot be asked. What is asked instead knows all images and every
label but the one in question: labels spread along a graph of nearest neighbours (Zhou et al. 2004, "Learning with
local and global consistency"),

    F = (I − α S)⁻¹ Y,    S = D^(−½) W D^(−½),

and leaving out label i removes one term of a sum, so that no network is trained again: with A = (I − α S)⁻¹,

    F_i without its own label = Σ_{j ≠ i} A_ij Y_j.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from selfcal.data.dataset import Dataset
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation import efficientnet
from selfcal.evaluation.features import efficientnet_lite0, wants_photos
from selfcal.evaluation.guide import evenly

NEIGHBOURS = 5
ALPHA = 0.99  # how far labels spread: they reach about 1/(1 − α) steps along the graph
TIMES = 5.0  # another class must be so much likelier than the given one
OTHERS = 2  # labels that a class must keep for the one left out to be judged
MOST = 3000  # images in the graph: a dense matrix of them is solved


@dataclass(frozen=True)
class LeftOut:
    """What the other labels say of each labelled example."""

    places: Tensor  # (L,): of labelled examples, in the data
    given: Tensor  # (L,): their labels
    probabilities: Tensor  # (L, K): without the label itself; zeros where its class keeps too few others
    others: Tensor  # (M,): of unlabelled examples, in the data
    of_others: Tensor  # (M, K): what all labels say of these

    @property
    def judged(self) -> Tensor:
        return self.probabilities.sum(-1) > 0

    @property
    def agreement(self) -> float | None:
        """Share of the labels that can be judged which the others confirm."""
        judged = self.judged
        if not judged.any():
            return None
        return float((self.probabilities.argmax(-1) == self.given)[judged].double().mean())

    def clear(self) -> tuple[Tensor, Tensor]:
        """Unlabelled examples, by their place in the data, of which one class is far likelier than any other; and
        that class."""
        best, second = self.of_others.topk(2, dim=1).values.unbind(1)
        sure = (best > 0) & (best >= TIMES * second)
        return self.others[sure], self.of_others.argmax(-1)[sure]

    @property
    def odds(self) -> Tensor:
        """(L,): how many times likelier another class is; 0 where nothing can be said."""
        own = self.probabilities.gather(1, self.given[:, None])[:, 0]
        best = self.probabilities.scatter(1, self.given[:, None], 0.0).max(-1).values
        return torch.where(self.judged, best / own.clamp(min=1e-12), 0.0)

    @property
    def suspects(self) -> Tensor:
        """Positions in `places` of labels that the others contradict, the most contradicted first."""
        order = self.odds.argsort(descending=True, stable=True)
        return order[self.odds[order] >= TIMES]


def left_out(data: Dataset, labels: Tensor, show_progress: bool = False) -> LeftOut:
    """Each label against all others, over the training images."""
    labelled = evenly((labels != UNLABELED).nonzero()[:, 0], MOST * 2 // 3)
    unlabelled = (labels == UNLABELED).nonzero()[:, 0]
    rest = evenly(unlabelled, MOST - len(labelled)) if len(unlabelled) else unlabelled
    pick = torch.cat([labelled, rest])
    spread = spreading(features_of(data, pick, show_progress), len(labelled))
    own, elsewhere = spread.split([len(labelled), len(rest)])
    given = labels[labelled]
    y = F.one_hot(given, len(data.classes)).double()
    return LeftOut(labelled, given, without_own(own, y), rest, shares(elsewhere @ y / y.sum(0).clamp(min=1)))


def features_of(data: Dataset, pick: Tensor, show_progress: bool) -> Tensor:
    """What images are compared by: of photos, features of a network that knows photos, where there is one."""
    if wants_photos(data) and efficientnet.is_installed():
        return efficientnet_lite0(data, show_progress).embed(data.x[pick])
    return data.x[pick].flatten(1)


def without_own(spread: Tensor, y: Tensor) -> Tensor:
    """(L, K): Σ_{j ≠ i} A_ij Y_j per class, as a mean over the class's other labels, normalised.

    The mean, since a class from which one of three labels is taken would otherwise look rarer than it is.
    """
    mass = (spread - spread.diag().diag()) @ y
    others = y.sum(0) - y  # (L, K): labels of each class without the one in question
    own = (others * y).sum(-1)
    return torch.where((own >= OTHERS)[:, None], shares(mass / others.clamp(min=1)), 0.0)


def shares(mass: Tensor) -> Tensor:
    """(N, K): of each row's sum; zeros where no label reaches."""
    return mass / mass.sum(-1, keepdim=True).clamp(min=1e-300)


def spreading(x: Tensor, labelled: int, k: int = NEIGHBOURS, alpha: float = ALPHA) -> Tensor:
    """(N, labelled): the columns of (I − α S)⁻¹ that belong to the first `labelled` of the points x (N, D)."""
    s = normalised(neighbour_weights(x, k))
    system = torch.eye(len(x), dtype=torch.float64) - alpha * s
    columns = torch.eye(len(x), labelled, dtype=torch.float64)
    return torch.linalg.solve(system, columns)


def neighbour_weights(x: Tensor, k: int) -> Tensor:
    """W_ij = exp(−‖x_i − x_j‖² / (r_i r_j)) where one is among the other's k nearest, r their k-th distances."""
    x = x.double()
    distance = torch.cdist(x, x).fill_diagonal_(torch.inf)
    near, index = distance.topk(min(k, len(x) - 1), largest=False)
    reach = near[:, -1].clamp(min=1e-12)
    weights = torch.exp(-near.square() / (reach[:, None] * reach[index]))
    whole = torch.zeros_like(distance).scatter_(1, index, weights)
    return torch.maximum(whole, whole.T)


def normalised(w: Tensor) -> Tensor:
    """D^(−½) W D^(−½)."""
    root = w.sum(1).clamp(min=1e-300).rsqrt()
    return root[:, None] * w * root[None]
