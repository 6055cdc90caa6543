"""One forward pass of a network on a noisy batch, from which every term of a loss reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from selfcal.data import UNLABELED
from selfcal.diffusion.noise import Noisy, ScoreFn

Term = Callable[[Any], Tensor]
"""A reading -> a scalar. What a term needs beyond the reading goes into its constructor."""


@runtime_checkable
class Remembers(Protocol):
    """A term that carries something from step to step: it goes into every checkpoint."""

    def state(self) -> dict[str, Tensor]: ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...


Logits = Callable[[Tensor, Tensor], Tensor]
"""A classifier: x (B, *), sigma (B,) -> logits (B, K)."""


class Reading:
    """A classifier's view of a batch: its logits, and gradients of anything made from them."""

    def __init__(self, classifier: Logits, batch: Noisy) -> None:
        self.classifier = classifier
        self.batch = batch
        self.x = batch.x.detach().requires_grad_()

    @cached_property
    def logits(self) -> Tensor:
        return self.classifier(self.x, self.batch.sigma)

    @property
    def labelled(self) -> Tensor:
        return self.batch.y != UNLABELED

    def grad(self, values: Tensor) -> Tensor:
        """∇ₓ of one value per example, itself differentiable. Examples must not mix (no batch norm)."""
        return torch.autograd.grad(values.sum(), self.x, create_graph=True)[0]

    @cached_property
    def inner_score(self) -> Tensor:
        """s^c(x, σ) = ∇ₓ logsumexp_y f(x, y, σ): the classifier read as an unconditional score model."""
        return self.grad(self.logits.logsumexp(-1))


class Estimate:
    """A score model's view of a batch."""

    def __init__(self, model: ScoreFn, batch: Noisy) -> None:
        self.batch = batch
        self.score = model(batch.x, batch.sigma)


class ConditionalEstimate:
    """A class-conditional score model's view of a batch; each label is dropped with probability `drop`."""

    def __init__(self, model: Callable[[Tensor, Tensor, Tensor], Tensor], batch: Noisy, drop: float = 0.0) -> None:
        self.batch = batch
        dropped = torch.rand(batch.sigma.shape, device=batch.sigma.device) < drop
        self.y = torch.where(dropped, UNLABELED, batch.y)
        self.score = model(batch.x, batch.sigma, self.y)
