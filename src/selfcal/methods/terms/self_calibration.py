"""Self-calibration, the paper's proposal: denoising score matching on the classifier's inner score."""

from __future__ import annotations

from selfcal.core.late import Tensor
from selfcal.methods.reading import Reading, Term
from selfcal.methods.terms.dsm import residual


def self_calibration(per_dimension: bool = False) -> Term:
    """L_SC = E[½ σ² ‖∇ₓ logsumexp_y f(x_σ, y, σ) − ∇ log p(x_σ|x₀)‖²], eq. 7 of the paper.

    Over labelled examples (`-labeled`) or all of them (`-all`), as its row says. Summed over dimensions,
    or their mean with per_dimension: for a 32×32 colour image the two differ by 3072, more than the whole
    grid of λ_SC.
    """

    def term(r: Reading) -> Tensor:
        loss = residual(r.batch, r.inner_score)
        if per_dimension:
            loss = loss / r.batch.x[0].numel()
        return r.mean(loss)

    return term
