"""The oracle itself, against automatic differentiation and Monte Carlo."""

from __future__ import annotations

import pytest
import torch

from oracle import perturbed, three_classes
from selfcal.data import moons


@pytest.mark.parametrize("mixture", [three_classes(), moons.mixture()], ids=["three", "moons"])
def test_scores_are_gradients_of_the_log_density(mixture):
    x = (3 * torch.randn(50, 2, dtype=torch.float64)).requires_grad_()
    sigma = torch.rand(50, dtype=torch.float64) * 3 + 0.01
    y = torch.randint(len(mixture.priors), (50,))
    joint = mixture.log_joint(x, sigma)
    (unconditional,) = torch.autograd.grad(joint.logsumexp(-1).sum(), x, retain_graph=True)
    torch.testing.assert_close(mixture.score(x, sigma), unconditional)
    (conditional,) = torch.autograd.grad(joint.gather(1, y[:, None]).sum(), x)
    torch.testing.assert_close(mixture.conditional_score(x, sigma, y), conditional)


def test_log_joint_is_a_normalised_density():
    mixture = three_classes()
    step = 0.1
    axis = torch.arange(-12, 12, step, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    density = mixture.log_joint(grid, torch.full((len(grid),), 0.7, dtype=torch.float64)).exp()
    torch.testing.assert_close(density.sum(0) * step**2, mixture.priors, rtol=1e-6, atol=0)


def test_the_score_is_the_best_denoiser():
    """E‖σ s + z‖² can only grow when the exact score is scaled."""
    mixture = three_classes()
    batch = perturbed(mixture, 20_000, (0.3, 3.0))
    exact = mixture.score(batch.x, batch.sigma)
    loss = {
        factor: float((batch.sigma[:, None] * factor * exact + batch.z).square().sum(1).mean())
        for factor in (0.8, 1.0, 1.2)
    }
    assert loss[1.0] < loss[0.8]
    assert loss[1.0] < loss[1.2]


def test_samples_follow_the_priors_and_moments():
    mixture = three_classes()
    x, y = mixture.sample(50_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.bincount(y) / len(y), mixture.priors.float(), atol=0.01, rtol=0)
    torch.testing.assert_close(x[y == 2].mean(0), torch.tensor([2.5, -1.5]), atol=0.03, rtol=0)
    assert float(x[y == 2].var(0)[0]) == pytest.approx(0.25 + 0.25, abs=0.02)


def test_moons_are_as_specified():
    mixture = moons.mixture()
    assert mixture.centres.shape == (1000, 2)
    assert mixture.variance == 1.0
    torch.testing.assert_close(mixture.centres.mean(0), torch.zeros(2, dtype=torch.float64))
    data = moons.load()
    assert (len(data.x), len(data.x_test)) == (2000, 2000)
    assert torch.equal(data.x, moons.load().x)
