"""How a gradient becomes a step: Adam, and Muon, whose steps on matrices have no weak directions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from selfcal.core.settings import NetworkSettings

QUINTIC = (3.4445, -4.7750, 2.0315)  # a p(x) = ax + bx³ + cx⁵ that takes (0, 1] near 1 within few rounds
ROUNDS = 5
AS_ADAM = 0.2  # root mean square of a step, in learning rates: about what Adam's steps have


def orthogonal(matrices: Tensor) -> Tensor:
    """(N, r, c) -> U Vᵀ of each G = U S Vᵀ, nearly: singular values between .7 and 1.2 (Newton–Schulz).

    X ← QX with Q = aI + bA + cA² and A = XXᵀ, from X = G/‖G‖: an odd polynomial of every singular value. All the Q
    commute with A, so that A ← QAQ is enough to know the next one, and X is multiplied once, at the end.
    """
    a, b, c = QUINTIC
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-12)
    gram, product = x @ x.mT, torch.eye(x.shape[-2], dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
    for _ in range(ROUNDS):
        q = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        q.diagonal(dim1=-2, dim2=-1).add_(a)
        product, gram = q @ product, q @ gram @ q
    x = product @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal before each step (Jordan et al. 2024); Adam for what is no matrix.

    M ← μM + (1 − μ)G;  W ← W − η · 0.2 √max(r, c) · UVᵀ of (1 − μ)G + μM. A convolution is a matrix with a row for each
    output. The factor gives steps the size of Adam's (Liu et al. 2025), so that one learning rate serves both. Where
    two losses disagree on how large a step may be, the larger gradient drowns the other in Adam; here a direction
    that only the smaller one knows is gone along as far as any other.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, betas: tuple[float, float] = (0.9, 0.999), mu: float = 0.95
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "mu": mu, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            moving = [p for p in group["params"] if p.grad is not None]
            for p in moving:
                self._begin(p)
            self._step_matrices([p for p in moving if is_matrix(p)], group["lr"], group["mu"])
            self._step_others([p for p in moving if not is_matrix(p)], group["lr"], group["betas"], group["eps"])

    def _begin(self, p: Tensor) -> None:
        state = self.state[p]
        for moment in () if state else moments_of(self, p):
            state[moment] = torch.zeros_like(p)
        state["step"] = state.get("step", torch.zeros(())) + 1

    def _step_matrices(self, matrices: list[Tensor], lr: float, mu: float) -> None:
        """Those of one shape at once."""
        alike: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
        for p in matrices:
            alike[len(p), p[0].numel()].append(p)
        for shape, members in alike.items():
            averages = [self.state[p]["exp_avg"] for p in members]
            gradients = [p.grad for p in members if p.grad is not None]  # all of them: the others do not move
            torch._foreach_lerp_(averages, gradients, 1 - mu)
            ahead = torch._foreach_lerp(gradients, averages, mu)
            steps = orthogonal(torch.stack([t.reshape(shape) for t in ahead]))
            for p, step in zip(members, steps, strict=True):
                p.sub_(step.view(p.shape), alpha=lr * AS_ADAM * max(shape) ** 0.5)

    def _step_others(self, others: list[Tensor], lr: float, betas: tuple[float, float], eps: float) -> None:
        for p in others:
            state, g = self.state[p], p.grad
            assert g is not None
            count = float(state["step"])
            mean = state["exp_avg"].lerp_(g, 1 - betas[0]) / (1 - betas[0] ** count)
            square = state["exp_avg_sq"].lerp_(g.square(), 1 - betas[1]) / (1 - betas[1] ** count)
            p.sub_(mean / (square.sqrt() + eps), alpha=lr)


def is_matrix(p: Tensor) -> bool:
    return p.ndim >= 2


def adam(parameters: Iterable[nn.Parameter], net: NetworkSettings, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=net.lr, betas=(0.9, net.beta2), fused=fused)


def muon(parameters: Iterable[nn.Parameter], net: NetworkSettings, fused: bool) -> torch.optim.Optimizer:
    return Muon(parameters, lr=net.lr, betas=(0.9, net.beta2))


OPTIMISERS: dict[str, Callable[[Iterable[nn.Parameter], NetworkSettings, bool], torch.optim.Optimizer]] = {
    "adam": adam,
    "muon": muon,
}


def moments_of(optimiser: torch.optim.Optimizer, p: Tensor) -> tuple[str, ...]:
    """What an optimiser remembers of a parameter, beside the number of its steps."""
    return ("exp_avg",) if isinstance(optimiser, Muon) and is_matrix(p) else ("exp_avg", "exp_avg_sq")
