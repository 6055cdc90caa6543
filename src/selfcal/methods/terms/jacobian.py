"""Jacobian regularisation (Hoffman et al. 2019): logits that change little with the input."""

from __future__ import annotations

from selfcal.core.late import Tensor, torch
from selfcal.methods.reading import Reading, Term


def jacobian(projections: int | None = 1) -> Term:
    """½ E‖∂f/∂x_σ‖²_F over the batch, by random projections; None sums over all classes exactly.

    For v uniform on the unit sphere of R^K, K E‖∇ₓ(v·f)‖² = ‖J‖²_F.
    """

    def term(r: Reading) -> Tensor:
        classes = r.logits.shape[1]
        if projections is None:
            rows = torch.eye(classes).to(r.logits)
            return 0.5 * sum((_squared(r, v.expand_as(r.logits)) for v in rows), start=torch.zeros_like(r.logits[0, 0]))
        total = torch.zeros_like(r.logits[0, 0])
        for _ in range(projections):
            v = torch.randn_like(r.logits)
            total = total + classes * _squared(r, v / v.norm(dim=1, keepdim=True))
        return 0.5 * total / projections

    return term


def _squared(r: Reading, v: Tensor) -> Tensor:
    return r.mean(r.grad((v * r.logits).sum(-1)).flatten(1).square().sum(1))
