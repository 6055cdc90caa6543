"""Robust classifier guidance (Kawar et al. 2023): cross-entropy on adversarially moved inputs."""

from __future__ import annotations

import math

from selfcal.core.late import Tensor, torch
from selfcal.diffusion.scores import UNLABELED, Logits, like
from selfcal.methods.reading import Reading, Term


def attack(classifier: Logits, x: Tensor, sigma: Tensor, y: Tensor, epsilon: Tensor, steps: int) -> Tensor:
    """Untargeted PGD in an L2 ball of radius epsilon (B,) around x, without random start.

    Only examples still classified correctly move: one that is fooled stays where it is.
    """
    radius, moved = like(epsilon, x), x.detach()
    for _ in range(steps):
        moved = moved.detach().requires_grad_()
        with torch.enable_grad():
            logits = classifier(moved, sigma)
            loss = torch.nn.functional.cross_entropy(logits, y, ignore_index=UNLABELED, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, moved)
        length = like(gradient.flatten(1).norm(dim=1).clamp(min=1e-12), x)
        stepped = moved.detach() + 2.5 * radius / steps * gradient / length
        offset = stepped - x
        offset = offset * (radius / like(offset.flatten(1).norm(dim=1).clamp(min=1e-12), x)).clamp(max=1)
        correct = like((logits.argmax(-1) == y).to(x), x) > 0
        moved = torch.where(correct, x + offset, moved.detach())
    return moved.detach()


def robust_cross_entropy(epsilon: float = 0.5, steps: int = 7, grow_from: float = math.inf) -> Term:
    """E[CE(f(x_σ + δ), y)] with the worst δ found, ‖δ‖ ≤ ε·max(1, σ/grow_from).

    A constant ε (the original's) is negligible against large noise; grow_from = σ_d lets it grow with σ.
    """

    def term(r: Reading) -> Tensor:
        reach = epsilon * (r.batch.sigma / grow_from).clamp(min=1)
        moved = attack(r.classifier, r.batch.x, r.batch.sigma, r.y, reach, steps)
        return torch.nn.functional.cross_entropy(r.classifier(moved, r.batch.sigma), r.y, ignore_index=UNLABELED)

    return term
