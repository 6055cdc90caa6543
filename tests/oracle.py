"""Exact truth to test against: small Gaussian mixtures whose scores are known at every σ."""

from __future__ import annotations

import torch

from selfcal.diffusion.mixture import GaussianMixture


def three_classes() -> GaussianMixture:
    """Three overlapping classes in the plane, unequal priors, two centres each."""
    return GaussianMixture(
        centres=torch.tensor([[0, 2], [1, 3], [-2, -1], [-3, 0], [2, -2], [3, -1]], dtype=torch.float64),
        labels=torch.tensor([0, 0, 1, 1, 2, 2]),
        variance=0.25,
        priors=torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64),
    )


def perturbed(mixture: GaussianMixture, count: int, sigma: tuple[float, float], seed: int = 0):
    """A noisy float64 batch of the mixture, with every class known."""
    from selfcal.diffusion.noise import Noise, Noisy

    rng = torch.Generator().manual_seed(seed)
    x0, y = mixture.sample(count, rng)
    batch = Noise(*sigma).perturb(x0, y, rng)
    return Noisy(*(v.double() if v.is_floating_point() else v for v in vars(batch).values()))
