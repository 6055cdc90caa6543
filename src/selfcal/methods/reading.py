"""One forward pass of a network on a noisy batch, from which every term of a loss reads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, runtime_checkable

from selfcal.core.late import Tensor, torch
from selfcal.diffusion.noise import Noisy
from selfcal.diffusion.scores import UNLABELED, Conditional, Logits, ScoreFn

Term = Callable[[Any], Tensor]
"""A reading -> a scalar. What a term needs beyond the reading goes into its constructor."""


@runtime_checkable
class Remembers(Protocol):
    """A term that carries something from step to step: it goes into every checkpoint."""

    def state(self) -> dict[str, Tensor]: ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...


@dataclass(frozen=True)
class Sees:
    """Which examples of a batch a term counts: the weights themselves, and what the table calls them."""

    name: str
    weights: Callable[[Tensor], Tensor]  # classes y (B,), UNLABELED where hidden -> how much each example counts (B,)

    def __str__(self) -> str:
        return self.name


ALL = Sees("all", lambda y: torch.ones_like(y))
LABELLED = Sees("labelled", lambda y: y != UNLABELED)
UNLABELLED = Sees("unlabelled", lambda y: y == UNLABELED)


def in_true_shares(label_fraction: float) -> Sees:
    """Undo the half-labelled batch: labelled examples count with their true share of the data.

    Without it each labelled image counts (1 − r)/r times as much as an unlabelled one (49× at 2 %),
    and the inner score learns a density with a spike on every labelled image.
    """

    def weights(y: Tensor) -> Tensor:
        labelled = (y != UNLABELED).float()
        share = labelled.mean().clamp(min=1e-12)
        rest = (1 - share).clamp(min=1e-12)
        return labelled * (label_fraction / share) + (1 - labelled) * ((1 - label_fraction) / rest)

    return Sees("all", weights)


def thinned(sees: Sees) -> Sees:
    """The same shares by leaving examples out at random instead of weighing them down: none is computed in vain."""

    def weights(y: Tensor) -> Tensor:
        wanted = sees.weights(y)
        return (torch.rand(y.shape, device=y.device) < wanted / wanted.max()).float()

    return Sees(sees.name, weights)


class View:
    """A batch as one term sees it."""

    def __init__(self, batch: Noisy) -> None:
        self.batch = batch
        self.weights = ALL.weights(batch.y).to(batch.sigma)  # how much each example counts, (B,)

    def through(self, sees: Sees) -> Self:
        """The same pass of the network, for a term that counts other examples."""
        other = copy.copy(self)
        other.weights = sees.weights(self.batch.y).to(self.batch.sigma)
        return other

    def views(self, sees: Mapping[str, Sees]) -> Mapping[str, View]:
        """What each of several terms sees."""
        return {name: self.through(s) for name, s in sees.items()}

    @property
    def y(self) -> Tensor:
        """Classes of the examples that count; UNLABELED for all others."""
        return torch.where(self.weights > 0, self.batch.y, UNLABELED)

    def mean(self, each: Tensor) -> Tensor:
        """The mean of one value per example (B,), over the examples that count."""
        return (self.weights * each).sum() / self.weights.sum()


class Reading(View):
    """A classifier's view of a batch: its logits, and gradients of anything made from them."""

    def __init__(self, classifier: Logits, batch: Noisy) -> None:
        super().__init__(batch)
        self.classifier = classifier
        self.x = batch.x.detach().requires_grad_()
        self._once: dict[str, Tensor] = {}  # shared by all views of this pass

    def views(self, sees: Mapping[str, Sees]) -> Mapping[str, View]:
        """Terms share a pass of the network where one of them sees all that the other does; those that see
        different examples get passes of their own, so that no example is differentiated for a term that ignores it."""
        whole = {name: self.through(s) for name, s in sees.items()}
        passes: list[tuple[Tensor, Reading]] = []
        parts: dict[str, View] = {}
        for name in sorted(whole, key=lambda name: -int((whole[name].weights > 0).sum())):
            counted = whole[name].weights > 0
            covering = [p for p in passes if not (counted & ~p[0]).any()]
            if not covering:
                passes.append((counted, self if counted.all() else self._narrowed(counted)))
                covering = passes[-1:]
            of_pass, reading = covering[0]
            parts[name] = copy.copy(reading)
            parts[name].weights = whole[name].weights[of_pass]
        return {name: parts[name] for name in sees}

    def _narrowed(self, counted: Tensor) -> Reading:
        return Reading(self.classifier, Noisy(*(getattr(self.batch, f.name)[counted] for f in fields(self.batch))))

    @property
    def logits(self) -> Tensor:
        if "logits" not in self._once:
            self._once["logits"] = self.classifier(self.x, self.batch.sigma)
        return self._once["logits"]

    @property
    def inner_score(self) -> Tensor:
        """s^c(x, σ) = ∇ₓ logsumexp_y f(x, y, σ): the classifier read as an unconditional score model."""
        if "inner score" not in self._once:
            self._once["inner score"] = self.grad(self.logits.logsumexp(-1))
        return self._once["inner score"]

    def grad(self, values: Tensor) -> Tensor:
        """∇ₓ of one value per example, itself differentiable. Examples must not mix (no batch norm)."""
        return torch.autograd.grad(values.sum(), self.x, create_graph=True)[0]

    def log_likelihood(self) -> Tensor:
        """log p(y | x_σ) of each example's own class, (B,); of unlabelled ones, of the first class."""
        return self.logits.log_softmax(-1).gather(1, self.batch.y.clamp(min=0)[:, None])[:, 0]


class Estimate(View):
    """A score model's view of a batch."""

    def __init__(self, model: ScoreFn, batch: Noisy) -> None:
        super().__init__(batch)
        self.score = model(batch.x, batch.sigma)


class ConditionalEstimate(View):
    """A class-conditional score model's view of a batch; each label is dropped with probability `drop`."""

    def __init__(self, model: Conditional, batch: Noisy, drop: float = 0.0) -> None:
        super().__init__(batch)
        dropped = torch.rand(batch.sigma.shape, device=batch.sigma.device) < drop
        self.told = torch.where(dropped, UNLABELED, batch.y)
        self.score = model(batch.x, batch.sigma, self.told)
