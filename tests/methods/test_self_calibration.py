"""Self-calibration, cross-entropy and denoising, against exact mixture scores."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from oracle import perturbed, three_classes
from selfcal.diffusion.noise import Noisy
from selfcal.diffusion.scores import UNLABELED
from selfcal.methods.reading import ALL, LABELLED, Estimate, Reading, in_true_shares
from selfcal.methods.terms.cross_entropy import cross_entropy
from selfcal.methods.terms.dsm import denoising, residual
from selfcal.methods.terms.self_calibration import self_calibration
from selfcal.nets.forms import EDM

MIXTURE = three_classes()


def bump(x):
    """A smooth function to perturb an exact energy with."""
    return (x[:, 0] * 0.7 + 0.2).tanh() + (x[:, 1] - 0.5).sin() * 0.5


def hide(batch, mask):
    return Noisy(batch.x0, torch.where(mask, UNLABELED, batch.y), batch.sigma, batch.z, batch.x)


def test_self_calibration_of_exact_logits_equals_exact_dsm():
    batch = perturbed(MIXTURE, 500, (0.1, 5.0))
    exact = residual(batch, MIXTURE.score(batch.x, batch.sigma)).mean()
    torch.testing.assert_close(self_calibration()(Reading(MIXTURE.log_joint, batch)), exact)


def sc_slope(amount):
    """d/da of the SC loss of logits + a·bump at a = amount, per example."""
    batch = perturbed(MIXTURE, 40_000, (0.1, 5.0))
    a = torch.full((40_000,), amount, dtype=torch.float64, requires_grad=True)
    reading = Reading(lambda x, s: MIXTURE.log_joint(x, s) + (a * bump(x))[:, None], batch)
    return torch.autograd.grad(residual(batch, reading.inner_score).sum(), a)[0]


def test_self_calibration_is_stationary_at_the_truth_and_only_there():
    slope = sc_slope(0.0)
    error = slope.std() / len(slope) ** 0.5
    assert slope.mean().abs() < 4 * error
    away = sc_slope(0.5)
    assert away.mean() > 10 * away.std() / len(away) ** 0.5


def test_self_calibration_is_minimal_at_the_truth():
    batch = perturbed(MIXTURE, 40_000, (0.1, 5.0))
    loss = {
        a: self_calibration()(Reading(lambda x, s, a=a: MIXTURE.log_joint(x, s) + a * bump(x)[:, None], batch)).item()
        for a in (-0.3, 0.0, 0.3)
    }
    assert loss[0.0] < loss[-0.3]
    assert loss[0.0] < loss[0.3]


def test_self_calibration_gradient_matches_finite_differences():
    """Through the double backward, w.r.t. the parameters of a small network."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.SiLU(), torch.nn.Linear(8, 3)).double()
    batch = perturbed(MIXTURE, 16, (0.1, 5.0))
    term = self_calibration()

    def loss():
        return term(Reading(lambda x, s: net(torch.cat([x, s.log()[:, None]], 1)), batch))

    weight = net[0].weight
    (gradient,) = torch.autograd.grad(loss(), weight)
    direction, h = torch.randn_like(weight), 1e-5
    weight.data += h * direction
    up = loss().item()
    weight.data -= 2 * h * direction
    down = loss().item()
    assert float((gradient * direction).sum()) == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_who_sees_self_calibration():
    batch = perturbed(MIXTURE, 64, (0.1, 5.0))
    hidden = torch.arange(64) >= 32
    reading = Reading(MIXTURE.log_joint, hide(batch, hidden))
    each = residual(batch, reading.inner_score)
    torch.testing.assert_close(self_calibration()(reading.through(ALL)), each.mean())
    torch.testing.assert_close(self_calibration()(reading.through(LABELLED)), each[:32].mean())
    pool = self_calibration()(reading.through(in_true_shares(0.02)))
    torch.testing.assert_close(pool, 0.02 * each[:32].mean() + 0.98 * each[32:].mean())
    torch.testing.assert_close(self_calibration(per_dimension=True)(reading), each.mean() / 2)


def test_rebalancing_a_fully_labelled_batch_changes_nothing():
    reading = Reading(MIXTURE.log_joint, perturbed(MIXTURE, 64, (0.1, 5.0)))
    torch.testing.assert_close(self_calibration()(reading.through(in_true_shares(1.0))), self_calibration()(reading))


def test_cross_entropy_sees_labelled_examples_at_their_noisy_place():
    batch = perturbed(MIXTURE, 64, (0.1, 5.0))
    hidden = torch.arange(64) % 2 == 1
    loss = cross_entropy()(Reading(MIXTURE.log_joint, hide(batch, hidden)).through(LABELLED))
    expected = F.cross_entropy(MIXTURE.log_joint(batch.x, batch.sigma)[~hidden], batch.y[~hidden])
    torch.testing.assert_close(loss, expected)
    on_clean = F.cross_entropy(MIXTURE.log_joint(batch.x0, batch.sigma)[~hidden], batch.y[~hidden])
    assert abs((loss - on_clean).item()) > 1e-3


def test_denoising_weight_makes_it_edms_loss():
    """½ (1 + σ²/σ_d²) ‖σ s + z‖² = ½ (σ² + σ_d²)/(σ σ_d)² σ_d²·… : EDM's weight on ‖D − x₀‖²."""
    batch = perturbed(MIXTURE, 64, (0.1, 5.0))
    estimate = Estimate(lambda x, s: -0.3 * x, batch)
    sigma, sigma_data = batch.sigma, 0.5
    denoised = batch.x + sigma[:, None] ** 2 * estimate.score
    weight = (sigma**2 + sigma_data**2) / (sigma * sigma_data) ** 2
    expected = 0.5 * (weight * (denoised - batch.x0).square().sum(1)).mean()
    torch.testing.assert_close(denoising(EDM(sigma_data).weight)(estimate), expected)


def test_a_lift_lets_middle_noise_count_as_in_the_score_models_loss_up_to_it():
    batch = perturbed(MIXTURE, 64, (0.1, 5.0))
    reading = Reading(MIXTURE.log_joint, batch)
    each = residual(batch, reading.inner_score)
    middle = batch.sigma <= 2.0
    assert 0 < middle.sum() < 64
    weight = EDM(0.5).weight(batch.sigma.clamp(max=2.0))
    torch.testing.assert_close(weight[middle], EDM(0.5).weight(batch.sigma[middle]))
    torch.testing.assert_close(weight[~middle], torch.full_like(weight[~middle], 17.0))
    torch.testing.assert_close(self_calibration(lift=2.0)(reading), (weight * each).mean())
    assert self_calibration(lift=0.0)(reading) == each.mean()
