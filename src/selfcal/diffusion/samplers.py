"""Samplers: one function each, from noise x at sigmas[0] down the list to sigmas[-1] (usually 0).

Every one takes a score of (x, σ) and asks nothing about where it comes from. D = x + σ² s is the
denoised estimate (Tweedie). `rng` makes the noise repeatable on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import ScoreFn


@dataclass(frozen=True)
class Rows:
    """The random state of some rows of a batch: noise is drawn for all of it, whoever walks the other rows."""

    rng: torch.Generator
    batch: int
    which: slice


Random = torch.Generator | Rows | None


def gaussian(x: Tensor, rng: Random) -> Tensor:
    """Noise shaped like x, drawn on the CPU so that a seed means the same everywhere."""
    if isinstance(rng, Rows):
        return torch.randn((rng.batch, *x.shape[1:]), generator=rng.rng, dtype=x.dtype)[rng.which].to(x.device)
    return torch.randn(x.shape, generator=rng, dtype=x.dtype).to(x.device)


def each(sigma: Tensor, x: Tensor) -> Tensor:
    """One σ for every example of x."""
    return sigma.to(x).expand(len(x))


@torch.no_grad()
def sample_pc(score: ScoreFn, x: Tensor, sigmas: Tensor, *, snr: float = 0.16, rng: Random = None) -> Tensor:
    """Predictor–corrector, the paper's sampler (Song et al. 2021): 2 evaluations a step.

    Per level one Langevin step, its size 2 (r ‖n‖/‖s‖)² from batch means of norms, then reverse
    diffusion. The last prediction comes without noise and is exactly a Tweedie denoising.
    """
    mean = x
    for now, after in pairwise(sigmas.to(x)):
        s, n = score(x, each(now, x)), gaussian(x, rng)
        ratio = n.flatten(1).norm(dim=1).mean() / s.flatten(1).norm(dim=1).mean()
        step = 2 * (snr * ratio) ** 2
        x = x + step * s + (2 * step).sqrt() * n
        variance = now**2 - after**2
        mean = x + variance * score(x, each(now, x))
        x = mean + variance.sqrt() * gaussian(x, rng)
    return mean


@torch.no_grad()
def sample_euler(score: ScoreFn, x: Tensor, sigmas: Tensor, *, rng: Random = None) -> Tensor:
    """Euler's method on the probability flow dx/dσ = −σ s(x, σ)."""
    for now, after in pairwise(sigmas.to(x)):
        x = x - (after - now) * now * score(x, each(now, x))
    return x


@torch.no_grad()
def sample_heun(
    score: ScoreFn,
    x: Tensor,
    sigmas: Tensor,
    *,
    churn: float = 0.0,
    churn_min: float = 0.05,
    churn_noise: float = 1.003,
    rng: Random = None,
) -> Tensor:
    """Heun's second-order method on the probability flow; with churn > 0 a stochastic one.

    Karras et al. 2022, algorithm 2: `churn` is their S_churn, spread over the steps above churn_min.
    """
    gamma = min(churn / (len(sigmas) - 1), 2**0.5 - 1)
    for now, after in pairwise(sigmas.to(x)):
        if gamma > 0 and now >= churn_min:  # step back up in noise, then down from there
            raised = now * (1 + gamma)
            x = x + (raised**2 - now**2).sqrt() * churn_noise * gaussian(x, rng)
            now = raised
        slope = -now * score(x, each(now, x))
        ahead = x + (after - now) * slope
        if after > 0:
            slope = (slope - after * score(ahead, each(after, x))) / 2
        x = x + (after - now) * slope
    return x


@torch.no_grad()
def sample_dpmpp_2m_sde(score: ScoreFn, x: Tensor, sigmas: Tensor, *, eta: float = 2.0, rng: Random = None) -> Tensor:
    """SDE-DPM-Solver++(2M) (Lu et al. 2022): second-order multistep, one evaluation a step.

    eta scales the fresh noise of each step: 0 is the probability flow, 1 the reverse SDE; above 1
    more noise is swapped, which corrects errors of the guidance.
    """
    last_denoised, last_h = x, x.new_tensor(torch.inf)
    for now, after in pairwise(sigmas.to(x)):
        denoised = x + now**2 * score(x, each(now, x))
        if after == 0:
            return denoised
        h = (now / after).log()  # λ = −ln σ is this solver's clock
        pull = -torch.expm1(-(1 + eta) * h)
        ahead = denoised + (denoised - last_denoised) * h / (2 * last_h)
        x = (after / now) * (-eta * h).exp() * x + pull * ahead
        if eta > 0:
            x = x + after * (-torch.expm1(-2 * eta * h)).sqrt() * gaussian(x, rng)
        last_denoised, last_h = denoised, h
    return x


def sample_dpmpp_2m(score: ScoreFn, x: Tensor, sigmas: Tensor, *, rng: Random = None) -> Tensor:
    """DPM-Solver++(2M): the same solver on the probability flow, deterministic."""
    return sample_dpmpp_2m_sde(score, x, sigmas, eta=0.0, rng=rng)


@dataclass(frozen=True)
class Sampler:
    """A row of the sampler table: the function, the levels it walks, and what a walk costs."""

    function: Callable[..., Tensor]
    levels: Callable[[Noise, int], Tensor]
    steps: int
    evaluations: Callable[[int], int]
    mixes: bool = False  # its steps go by means over the batch, which then cannot be shared


SAMPLERS: dict[str, Sampler] = {
    "pc": Sampler(sample_pc, Noise.geometric, 1000, lambda n: 2 * n, mixes=True),
    "euler": Sampler(sample_euler, Noise.karras, 40, lambda n: n),
    "heun": Sampler(sample_heun, Noise.karras, 18, lambda n: 2 * n - 1),
    "dpm++2m": Sampler(sample_dpmpp_2m, Noise.karras, 20, lambda n: n),
    "dpm++2m-sde": Sampler(sample_dpmpp_2m_sde, Noise.karras, 20, lambda n: n),
}
