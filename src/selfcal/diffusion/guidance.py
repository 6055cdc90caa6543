"""Guidance: functions from score to score. Samplers see neither labels nor classifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfcal.diffusion.scores import UNLABELED, Conditional, Logits, ScoreFn


def input_gradient(value_of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """∇ₓ of one value per example."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(value_of(x).sum(), x)[0]


def likelihood_score(classifier: Logits, x: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
    """∇ₓ log p(y | x, σ), (B, *). log_softmax, not log(softmax + ε): the gradient must not vanish at small p."""
    return input_gradient(lambda x: F.log_softmax(classifier(x, sigma), -1).gather(1, y[:, None]), x)


def classifier_guided(score: ScoreFn, classifier: Logits, y: Tensor, scale: float = 1.0) -> ScoreFn:
    """s(x, σ) + λ ∇ₓ log p(y | x, σ), eq. 4 of the paper."""

    def guided(x: Tensor, sigma: Tensor) -> Tensor:
        return score(x, sigma) + scale * likelihood_score(classifier, x, sigma, y)

    return guided


def inner_unconditional(classifier: Logits) -> ScoreFn:
    """∇ₓ logsumexp_y f(x, y, σ): the classifier alone as an unconditional model (appendix E)."""
    return lambda x, sigma: input_gradient(lambda x: classifier(x, sigma).logsumexp(-1), x)


def inner_conditional(classifier: Logits, y: Tensor) -> ScoreFn:
    """∇ₓ f(x, y, σ): both terms of Bayes' rule from the classifier alone (appendix E)."""
    return lambda x, sigma: input_gradient(lambda x: classifier(x, sigma).gather(1, y[:, None]), x)


def conditional(model: Conditional, y: Tensor) -> ScoreFn:
    """s(x, σ, y) of a network that is told the class."""
    return lambda x, sigma: model(x, sigma, y)


def classifier_free(model: Conditional, y: Tensor, weight: float = 0.0) -> ScoreFn:
    """(1 + w) s(x, σ, y) − w s(x, σ, ∅) (Ho & Salimans 2022); the paper's λ_CFG is w."""
    null = torch.full_like(y, UNLABELED)

    def guided(x: Tensor, sigma: Tensor) -> Tensor:
        wanted = model(x, sigma, y)
        return wanted if weight == 0 else (1 + weight) * wanted - weight * model(x, sigma, null)

    return guided


@dataclass(frozen=True)
class Guide:
    """A row of the table: the networks it needs; and from those, classes (B,) and λ, the score to sample from."""

    needs: tuple[str, ...]
    score: Callable[[Mapping[str, Any], Tensor, float], ScoreFn]
    knows_classes: bool = True  # or its samples are of any class, whatever was asked for
    has_strength: bool = False  # λ or w makes a difference


GUIDES: dict[str, Guide] = {
    "classifier": Guide(
        ("score", "classifier"),
        lambda nets, y, scale: classifier_guided(nets["score"], nets["classifier"], y, scale),
        has_strength=True,
    ),
    "classifier-only": Guide(("classifier",), lambda nets, y, scale: inner_conditional(nets["classifier"], y)),
    "classifier-only-unconditional": Guide(
        ("classifier",), lambda nets, y, scale: inner_unconditional(nets["classifier"]), knows_classes=False
    ),
    "conditional": Guide(("conditional",), lambda nets, y, scale: conditional(nets["conditional"], y)),
    "classifier-free": Guide(
        ("conditional",), lambda nets, y, scale: classifier_free(nets["conditional"], y, scale), has_strength=True
    ),
    "unconditional": Guide(("score",), lambda nets, y, scale: nets["score"], knows_classes=False),
}
