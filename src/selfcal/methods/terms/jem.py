"""JEM made time-dependent in the naive way (Grathwohl et al. 2020): long chains kept in a buffer.

The paper's authors saw it diverge in all runs; it is here so that one can see it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from selfcal.core.late import Tensor, torch
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import Logits, like
from selfcal.methods.reading import Reading, Term


class Buffer:
    """Chains by noise level: each bin of ln σ keeps its own, since x at one σ is no start for another."""

    def __init__(self, noise: Noise, bins: int = 10, size: int = 1000, renew: float = 0.05) -> None:
        self.noise, self.bins, self.renew, self.size = noise, bins, renew, size
        self.chains: dict[int, Tensor] = {}

    @cached_property
    def edges(self) -> Tensor:
        return self.noise.geometric(self.bins + 1)[:-1].flip(0)[1:-1].contiguous()

    def draw(self, like_x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(starts, bin, slot) for every example; some starts are fresh noise."""
        bins = torch.bucketize(sigma.cpu(), self.edges)
        slots = torch.randint(self.size, (len(sigma),))
        starts = torch.rand_like(like_x) * 2 - 1 + like(sigma, like_x) * torch.randn_like(like_x)
        lasting = torch.rand(len(sigma)) >= self.renew
        for b, chains in self.chains.items():
            chains = self.chains[b] = chains.to(like_x.device)  # restored chains come from the CPU
            of_bin = (bins == b) & lasting
            starts[of_bin] = chains[slots[of_bin]]
        return starts, bins, slots

    def put(self, x: Tensor, bins: Tensor, slots: Tensor) -> None:
        for b in bins.unique().tolist():
            of_bin = bins == b
            if b not in self.chains:
                self.chains[b] = x[of_bin][torch.randint(int(of_bin.sum()), (self.size,))].clone()
            self.chains[b][slots[of_bin]] = x[of_bin]

    def state(self) -> dict[str, Tensor]:
        return {str(b): chains for b, chains in self.chains.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        if any(not b.isdecimal() or int(b) > len(self.edges) or len(x) != self.size for b, x in state.items()):
            raise ValueError("the chains of its JEM term are of another size")
        self.chains = {int(b): x.clone() for b, x in state.items()}


def sgld(classifier: Logits, x: Tensor, sigma: Tensor, steps: int, step: float, jitter: float) -> Tensor:
    """x ← x + α σ² ∇ LSE + jitter·σ ξ: steps scale with the noise level, constant ones cannot serve all."""
    s = like(sigma, x)
    for _ in range(steps):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (rise,) = torch.autograd.grad(classifier(x, sigma).logsumexp(-1).sum(), x)
        x = x.detach() + step * s**2 * rise + jitter * s * torch.randn_like(x)
    return x.detach()


class NaiveEnergy:
    """E[LSE(x⁻, σ)] − E[LSE(x_σ, σ)] with x⁻ from persistent chains on LSE(·, σ)."""

    def __init__(self, noise: Noise, steps: int, step: float, jitter: float) -> None:
        self.buffer = Buffer(noise)
        self.steps, self.step, self.jitter = steps, step, jitter

    def __call__(self, r: Reading) -> Tensor:
        sigma = r.batch.sigma
        starts, bins, slots = self.buffer.draw(r.batch.x, sigma)
        end = sgld(r.classifier, starts, sigma, self.steps, self.step, self.jitter)
        self.buffer.put(end, bins, slots)
        return r.mean(r.classifier(end, sigma).logsumexp(-1)) - r.mean(r.logits.logsumexp(-1))

    def state(self) -> dict[str, Tensor]:
        return self.buffer.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.buffer.restore(state)


def naive_energy(noise: Noise, steps: int = 20, step: float = 0.5, jitter: float = 0.1) -> Term:
    """The term, with chains of its own."""
    return NaiveEnergy(noise, steps, step, jitter)
