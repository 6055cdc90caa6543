"""Denoising likelihood score matching (Chao et al. 2022): the classifier completes a frozen score model."""

from __future__ import annotations

from selfcal.core.late import Tensor, torch
from selfcal.diffusion.scores import ScoreFn
from selfcal.methods.reading import Reading, Term
from selfcal.methods.terms.dsm import residual


def likelihood_matching(score: ScoreFn, sigma_power: float = 2.0, per_dimension: bool = False) -> Term:
    """E[½ λ(σ) ‖∇ₓ log p(y|x_σ) + s(x_σ, σ) − ∇ log p(x_σ|x₀)‖²] over labelled examples, eq. 5 of the paper.

    λ(σ) = σ^sigma_power; the original repository uses sigma_power 0 and the mean over dimensions.
    log_softmax, not log(softmax + ε): its gradient does not vanish where the class looks impossible.
    """

    def term(r: Reading) -> Tensor:
        with torch.no_grad():
            frozen = score(r.batch.x, r.batch.sigma)
        loss = residual(r.batch, r.grad(r.log_likelihood()) + frozen) * r.batch.sigma ** (sigma_power - 2)
        if per_dimension:
            loss = loss / r.batch.x[0].numel()
        return r.mean(loss)

    return term
