"""Denoising score matching, the loss of every score here: the model's and the classifier's inner one."""

from __future__ import annotations

from collections.abc import Callable

from selfcal.core.late import Tensor
from selfcal.diffusion.noise import Noisy
from selfcal.diffusion.scores import like
from selfcal.methods.reading import ConditionalEstimate, Estimate, Term, View


def residual(batch: Noisy, score: Tensor) -> Tensor:
    """½ σ² ‖s(x_σ) − ∇ log p(x_σ|x₀)‖² = ½ ‖σ s + z‖², summed over dimensions, per example (B,).

    Eq. 2 of the paper with λ(t) = σ², since ∇ log p(x_σ|x₀) = −z/σ.
    """
    return 0.5 * (like(batch.sigma, score) * score + batch.z).square().flatten(1).sum(1)


def fraction(view: View, score: Tensor) -> Tensor:
    """The loss as a share of a zero score's, which is half the number of dimensions: 1 has learned nothing."""
    return view.mean(residual(view.batch, score)) / (score[0].numel() / 2)


def denoising(weight: Callable[[Tensor], Tensor]) -> Term:
    """DSM on a score model, weighted over σ as its form asks."""

    def term(e: Estimate | ConditionalEstimate) -> Tensor:
        return e.mean(weight(e.batch.sigma) * residual(e.batch, e.score))

    return term
