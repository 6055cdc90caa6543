"""Self-calibration, the paper's proposal: denoising score matching on the classifier's inner score."""

from __future__ import annotations

from selfcal.core.late import Tensor
from selfcal.methods.reading import Reading, Term
from selfcal.methods.terms.dsm import residual


def self_calibration(per_dimension: bool = False, lift: float = 0.0, sigma_data: float = 0.5) -> Term:
    """L_SC = E[½ σ² ‖∇ₓ logsumexp_y f(x_σ, y, σ) − ∇ log p(x_σ|x₀)‖²], eq. 7 of the paper.

    Over labelled examples (`-labeled`) or all of them (`-all`), as its row says. Summed over dimensions,
    or their mean with per_dimension: for a 32×32 colour image the two differ by 3072, more than the whole
    grid of λ_SC.

    With a lift L > 0 each example counts w(σ) = 1 + (min(σ, L)/σ_d)² times; 0 is the paper's λ(t) = σ². With that one
    most of the loss is noise of small σ that no score could tell from the image, and the σ at which classes take shape
    hardly count. w is what makes the loss that of a denoiser with unit targets (Karras et al. 2022), up to L: beyond
    it nothing but noise is left, and a loss that grows on would drown the others.
    """

    def term(r: Reading) -> Tensor:
        loss = (1 + (r.batch.sigma.clamp(max=lift) / sigma_data) ** 2) * residual(r.batch, r.inner_score)
        if per_dimension:
            loss = loss / r.batch.x[0].numel()
        return r.mean(loss)

    return term
