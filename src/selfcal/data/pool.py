"""Batches: how examples are drawn from the labelled and the unlabelled, and mirrored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from selfcal.core.late import Tensor, torch
from selfcal.diffusion.scores import UNLABELED


@dataclass(frozen=True)
class Pool:
    """The training examples by what is known of them; draws are index tensors, labelled ones first.

    Drawing with replacement makes a batch a function of the random state alone: a run continues
    exactly from any step without remembering where in the data it was.
    """

    y: Tensor

    @cached_property
    def labelled(self) -> Tensor:
        return (self.y != UNLABELED).nonzero()[:, 0]

    @cached_property
    def unlabelled(self) -> Tensor:
        return (self.y == UNLABELED).nonzero()[:, 0]

    @property
    def label_fraction(self) -> float:
        return len(self.labelled) / len(self.y)

    def from_all(self, size: int, rng: torch.Generator | None = None) -> Tensor:
        return torch.randint(len(self.y), (size,), generator=rng)

    def from_labelled(self, size: int, rng: torch.Generator | None = None) -> Tensor:
        return _pick(self.labelled, size, rng)

    def half_labelled(self, size: int, rng: torch.Generator | None = None) -> Tensor:
        """Exactly half labelled (the paper, §3.3); a plain batch when everything is labelled."""
        if not len(self.unlabelled):
            return self.from_all(size, rng)
        half = size // 2
        return torch.cat([_pick(self.labelled, size - half, rng), _pick(self.unlabelled, half, rng)])


def _pick(indices: Tensor, size: int, rng: torch.Generator | None) -> Tensor:
    return indices[torch.randint(len(indices), (size,), generator=rng)]


def mirrored_at_random(x: Tensor, rng: torch.Generator | None) -> Tensor:
    """Each image (B, C, H, W) flipped left to right with probability ½: another photo of the same thing."""
    flip = torch.rand(len(x), generator=rng) < 0.5
    return torch.where(flip[:, None, None, None], x.flip(-1), x)
