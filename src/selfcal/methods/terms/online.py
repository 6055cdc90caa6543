"""Targets of the classifier's own making: what it is sure of on the clean image, it learns to say of the noisy one.

FixMatch (Sohn et al. 2020) in the direction of noise; beyond the paper.
"""

from __future__ import annotations

from selfcal.core.late import Tensor, torch
from selfcal.methods.reading import Reading, Term


def own_targets(sigma_min: float, threshold: float = 0.9, sharpening: float = 2.0) -> Term:
    """E[−Σ_y q_y log p(y | x_σ)] with q = softmax(a f(x₀, ·, σ_min)), where max q ≥ τ and 0 elsewhere.

    Over the examples it sees, the sure and the unsure: while the classifier is sure of few, they count little.
    No gradient flows into q. Without threshold and sharpening it confirms its own errors.
    """

    def term(r: Reading) -> Tensor:
        with torch.no_grad():
            clean = r.classifier(r.batch.x0, torch.full_like(r.batch.sigma, sigma_min))
            target = (sharpening * clean).softmax(-1)
            sure = (target.max(-1).values >= threshold).to(target)
        if not r.weights.any():  # a batch with nothing unlabelled in it
            return 0.0 * r.logits.sum()
        return r.mean(-sure * (target * r.logits.log_softmax(-1)).sum(-1))

    return term
