"""Targets of the classifier's own making: what it is sure of on the clean image, it learns to say of the noisy one.

FixMatch (Sohn et al. 2020) in the direction of noise; where classes are known to be equally many, its targets are
kept so, as optimal transport would (Sinkhorn's scaling, a small step at a time). Beyond the paper.
"""

from __future__ import annotations

from collections.abc import Mapping

from selfcal.core.late import Tensor, torch
from selfcal.methods.reading import Reading, Term

LASTING = 0.95  # of the running mean of targets' shares, from one step to the next, once it is no longer young
PACE = 0.02  # of the offsets that balance them
RAREST = 1e-4  # a class that is hardly ever said is not lifted at any speed


class OwnTargets:
    """E[−Σ_y q_y log p(y | x_σ)] with q = softmax(a g), where max q ≥ τ and 0 elsewhere; g = f(x₀, ·, σ_min).

    Over the examples it sees, the sure and the unsure: while the classifier is sure of few, they count little.
    No gradient flows into q. Without threshold and sharpening it confirms its own errors.

    Balanced: g = f + b with an offset b_y for each class, such that the shares p̄ = mean softmax(g) become equal:
    b ← b − η log(K p̄) at every step. Where the images hold every class equally often, a class said too often is an
    error that would feed itself.
    """

    def __init__(self, sigma_min: float, threshold: float, sharpening: float, balanced: bool) -> None:
        self.sigma_min, self.threshold, self.sharpening, self.balanced = sigma_min, threshold, sharpening, balanced
        self.shares: Tensor | None = None  # p̄ (K,), of the steps so far
        self.offsets: Tensor | None = None  # b (K,)
        self.steps = 0

    def __call__(self, r: Reading) -> Tensor:
        if not r.weights.any():  # a batch with nothing unlabelled in it
            return 0.0 * r.logits.sum()
        target = self.targets(r)
        sure = (target.max(-1).values >= self.threshold).to(target)
        return r.mean(-sure * (target * r.logits.log_softmax(-1)).sum(-1))

    def targets(self, r: Reading) -> Tensor:
        """q (B, K)."""
        with torch.no_grad():
            clean = r.classifier(r.batch.x0, torch.full_like(r.batch.sigma, self.sigma_min))
            if self.balanced:
                clean = self.balance(clean, r.weights)
            return (self.sharpening * clean).softmax(-1)

    def balance(self, clean: Tensor, weights: Tensor) -> Tensor:
        """g of f (B, K); the shares that it has here move the offsets of the next step."""
        offsets = torch.zeros_like(clean[0]) if self.offsets is None else self.offsets.to(clean)  # restored: on the CPU
        g = clean + offsets
        of_batch = (weights[:, None] * g.softmax(-1)).sum(0) / weights.sum()
        lasting = min(LASTING, self.steps / (9 + self.steps))  # a young mean forgets faster
        self.shares = of_batch if self.shares is None else of_batch.lerp(self.shares.to(of_batch), lasting)
        self.offsets = offsets - PACE * (self.shares.clamp(min=RAREST) * len(self.shares)).log()
        self.steps += 1
        return g

    def state(self) -> dict[str, Tensor]:
        if self.shares is None or self.offsets is None:
            return {}
        return {"shares": self.shares, "offsets": self.offsets, "steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.shares, self.offsets, self.steps = None, None, 0
        if not state:
            return
        shares, offsets = state["shares"], state["offsets"]
        if shares.ndim != 1 or shares.shape != offsets.shape or not offsets.isfinite().all():
            raise ValueError("the shares of its own targets are not one number for each class")
        self.shares, self.offsets, self.steps = shares, offsets, int(state["steps"])


def own_targets(sigma_min: float, threshold: float = 0.9, sharpening: float = 2.0, balanced: bool = False) -> Term:
    """The term, with a memory of its own."""
    return OwnTargets(sigma_min, threshold, sharpening, balanced)
