"""Samplers fed with exact scores must reproduce the mixture."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from oracle import three_classes
from selfcal.core.errors import SelfcalError, look_up
from selfcal.diffusion.guidance import classifier_guided
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samplers import (
    SAMPLERS,
    sample_dpmpp_2m,
    sample_dpmpp_2m_sde,
    sample_euler,
    sample_heun,
    sample_pc,
)

MIXTURE = three_classes()
NOISE = Noise(0.02, 20.0)


def start(count, sigmas, seed=0):
    """Draws of p_σ at the first level: a deterministic sampler keeps whatever bias it starts with."""
    rng = torch.Generator().manual_seed(seed)
    noise = sigmas[0].double() * torch.randn(count, 2, generator=rng, dtype=torch.float64)
    return MIXTURE.sample(count, rng)[0] + noise, rng


def check_moments(x, tolerance):
    """Class proportions, mean and covariance of each class, and of the whole."""
    posterior = MIXTURE.log_joint(x, torch.full((len(x),), 1e-3, dtype=torch.float64)).softmax(-1)
    torch.testing.assert_close(posterior.mean(0), MIXTURE.priors, atol=tolerance, rtol=0)
    truth, _ = MIXTURE.sample(200_000, torch.Generator().manual_seed(9))
    truth = truth.double()
    torch.testing.assert_close(x.mean(0), truth.mean(0), atol=3 * tolerance, rtol=0)
    torch.testing.assert_close(x.T.cov(), truth.T.cov(), atol=8 * tolerance, rtol=0)
    weights = MIXTURE.log_joint(truth, torch.full((len(truth),), 1e-3, dtype=torch.float64)).softmax(-1)
    for c in range(3):
        mean = (posterior[:, c, None] * x).sum(0) / posterior[:, c].sum()
        expected = (weights[:, c, None] * truth).sum(0) / weights[:, c].sum()
        torch.testing.assert_close(mean, expected, atol=3 * tolerance, rtol=0)
        spread = (posterior[:, c, None] * (x - mean).square()).sum(0) / posterior[:, c].sum()
        wanted = (weights[:, c, None] * (truth - expected).square()).sum(0) / weights[:, c].sum()
        torch.testing.assert_close(spread, wanted, atol=3 * tolerance, rtol=0)


def test_pc_reproduces_class_proportions_and_moments():
    sigmas = NOISE.geometric(500)
    x, rng = start(6000, sigmas)
    check_moments(sample_pc(MIXTURE.score, x, sigmas, rng=rng), tolerance=0.025)


@pytest.mark.parametrize("eta", [0.5, 1.0, 2.0])
def test_dpmpp_2m_sde_reproduces_moments_for_every_eta(eta):
    sigmas = NOISE.karras(100)
    x, rng = start(20_000, sigmas)
    check_moments(sample_dpmpp_2m_sde(MIXTURE.score, x, sigmas, eta=eta, rng=rng), tolerance=0.02)


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        (sample_euler, {}),
        (sample_heun, {}),
        (sample_heun, {"churn": 20.0, "churn_noise": 1.0}),
        (sample_dpmpp_2m, {}),
    ],
)
def test_other_samplers_reproduce_moments(sampler, options):
    sigmas = NOISE.karras(200)
    x, rng = start(20_000, sigmas)
    check_moments(sampler(MIXTURE.score, x, sigmas, rng=rng, **options), tolerance=0.02)


def observed_order(sampler, steps=(40, 80, 160)):
    """Slope of log error over log steps on the probability flow from σ=20 to σ=0.05."""
    noise = Noise(0.05, 20.0)

    def levels(n):
        t = torch.linspace(0, 1, n + 1, dtype=torch.float64)
        return (20 ** (1 / 7) + t * (0.05 ** (1 / 7) - 20 ** (1 / 7))) ** 7

    x, _ = start(64, noise.karras(2))
    exact = sample_heun(MIXTURE.score, x, levels(5000))
    errors = [float((sampler(MIXTURE.score, x, levels(n)) - exact).norm(dim=1).median()) for n in steps]
    return [math.log2(a / b) for a, b in pairwise(errors)]


def test_orders_of_convergence():
    assert all(0.8 < order < 1.3 for order in observed_order(sample_euler))
    assert all(1.7 < order < 2.5 for order in observed_order(sample_heun))
    assert all(1.7 < order < 2.5 for order in observed_order(sample_dpmpp_2m))


def test_guided_sampling_reaches_the_wanted_class():
    sigmas = NOISE.karras(40)
    x, rng = start(3000, sigmas)
    y = torch.arange(3000) % 3
    made = sample_dpmpp_2m_sde(classifier_guided(MIXTURE.score, MIXTURE.log_joint, y), x, sigmas, eta=1.0, rng=rng)
    for c, mean in enumerate([(0.5, 2.5), (-2.5, -0.5), (2.5, -1.5)]):
        torch.testing.assert_close(made[y == c].mean(0), torch.tensor(mean, dtype=torch.float64), atol=0.08, rtol=0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_evaluations_are_counted_as_the_table_says(name):
    row, calls = SAMPLERS[name], []

    def score(x, sigma):
        calls.append(1)
        return MIXTURE.score(x, sigma)

    sigmas = row.levels(NOISE, 7)
    x, rng = start(4, sigmas)
    made = row.function(score, x, sigmas, rng=rng)
    assert len(calls) == row.evaluations(7)
    assert torch.isfinite(made).all()


@pytest.mark.parametrize("name", SAMPLERS)
def test_same_seed_same_samples(name):
    row = SAMPLERS[name]
    sigmas = row.levels(NOISE, 5)
    first, again, other = (
        row.function(MIXTURE.score, *[start(4, sigmas, s)[0]], sigmas, rng=start(4, sigmas, s)[1]) for s in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dpmpp_2m_is_the_sde_solver_without_noise():
    sigmas = NOISE.karras(12)
    x, _ = start(8, sigmas)
    assert torch.equal(
        sample_dpmpp_2m(MIXTURE.score, x, sigmas), sample_dpmpp_2m_sde(MIXTURE.score, x, sigmas, eta=0.0)
    )


def test_unknown_sampler_names_the_nearest():
    with pytest.raises(SelfcalError, match=r"did you mean 'dpm\+\+2m'"):
        look_up("sampler", "dpmpp2m", SAMPLERS)
