"""Self-calibration, the paper's proposal: denoising score matching on the classifier's inner score."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from selfcal.methods.reading import Reading, Term
from selfcal.methods.terms.dsm import residual

Weights = Callable[[Reading], Tensor]
"""How much each example of a reading counts, (B,)."""


def everyone(r: Reading) -> Tensor:
    """Labelled and unlabelled examples alike (`-all`)."""
    return torch.ones_like(r.batch.sigma)


def labelled_only(r: Reading) -> Tensor:
    """Labelled examples (`-labeled`)."""
    return r.labelled.to(r.batch.sigma)


def as_in_the_pool(label_fraction: float) -> Weights:
    """Undo the half-labelled batch: labelled examples count with their true share of the data.

    Without it each labelled image counts (1 − r)/r times as much as an unlabelled one (49× at 2 %),
    and the inner score learns a density with a spike on every labelled image.
    """

    def weights(r: Reading) -> Tensor:
        labelled = r.labelled.to(r.batch.sigma)
        share = labelled.mean().clamp(min=1e-12)
        rest = (1 - share).clamp(min=1e-12)
        return labelled * (label_fraction / share) + (1 - labelled) * ((1 - label_fraction) / rest)

    return weights


def self_calibration(weights: Weights = everyone, per_dimension: bool = False) -> Term:
    """L_SC = E[½ σ² ‖∇ₓ logsumexp_y f(x_σ, y, σ) − ∇ log p(x_σ|x₀)‖²], eq. 7 of the paper.

    Summed over dimensions, or their mean with per_dimension: for a 32×32 colour image the two
    differ by 3072, more than the whole grid of λ_SC.
    """

    def term(r: Reading) -> Tensor:
        loss = residual(r.batch, r.inner_score)
        if per_dimension:
            loss = loss / r.batch.x[0].numel()
        w = weights(r)
        return (w * loss).sum() / w.sum()

    return term
