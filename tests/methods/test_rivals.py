"""The mathematics of the rivals' terms, against exact mixtures and exact norms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from oracle import perturbed, three_classes
from selfcal.diffusion.noise import Noise, Noisy
from selfcal.diffusion.scores import UNLABELED
from selfcal.methods.reading import LABELLED, Reading
from selfcal.methods.terms.cross_entropy import cross_entropy
from selfcal.methods.terms.dlsm import likelihood_matching
from selfcal.methods.terms.dsm import residual
from selfcal.methods.terms.jacobian import jacobian
from selfcal.methods.terms.jem import naive_energy
from selfcal.methods.terms.recovery import langevin, recovery_likelihood
from selfcal.methods.terms.robust import attack, robust_cross_entropy

MIXTURE = three_classes()


def tilted(amount):
    """The exact classifier, with one class's logit wrongly tilted along x."""
    return lambda x, s: (
        MIXTURE.log_joint(x, s)
        + amount * torch.stack([x[:, 0].tanh(), torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])], -1)
    )


def test_label_smoothing_at_zero_is_cross_entropy_and_mixes_otherwise():
    reading = Reading(MIXTURE.log_joint, perturbed(MIXTURE, 64, (0.1, 5.0)))
    assert torch.equal(cross_entropy(0.0)(reading), cross_entropy()(reading))
    log_p = reading.logits.log_softmax(-1)
    target = 0.9 * F.one_hot(reading.batch.y, 3) + 0.1 / 3
    torch.testing.assert_close(cross_entropy(0.1)(reading), -(target * log_p).sum(-1).mean())


def test_dlsm_is_minimal_at_the_exact_likelihood_score():
    batch = perturbed(MIXTURE, 40_000, (0.1, 5.0))
    term = likelihood_matching(MIXTURE.score)
    loss = {a: term(Reading(tilted(a), batch)).item() for a in (-0.5, 0.0, 0.5)}
    assert loss[0.0] < loss[-0.5]
    assert loss[0.0] < loss[0.5]
    exact = residual(batch, MIXTURE.conditional_score(batch.x, batch.sigma, batch.y)).mean()
    assert loss[0.0] == pytest.approx(exact.item(), rel=1e-9)


def test_dlsm_is_stationary_at_the_truth():
    batch = perturbed(MIXTURE, 40_000, (0.1, 5.0))
    a = torch.zeros(40_000, dtype=torch.float64, requires_grad=True)
    reading = Reading(lambda x, s: MIXTURE.log_joint(x, s) + torch.stack([a * x[:, 0].tanh(), 0 * a, 0 * a], -1), batch)
    chosen = reading.logits.log_softmax(-1).gather(1, batch.y[:, None])
    each = residual(batch, reading.grad(chosen) + MIXTURE.score(batch.x, batch.sigma))
    slope = torch.autograd.grad(each.sum(), a)[0]
    assert slope.mean().abs() < 4 * slope.std() / len(slope) ** 0.5


def test_dlsm_sees_labelled_examples_only_and_weighs_by_sigma():
    batch = perturbed(MIXTURE, 64, (0.1, 5.0))
    hidden = torch.arange(64) >= 32
    half = Noisy(batch.x0, torch.where(hidden, UNLABELED, batch.y), batch.sigma, batch.z, batch.x)
    each = residual(batch, MIXTURE.conditional_score(batch.x, batch.sigma, batch.y))
    reading = Reading(MIXTURE.log_joint, half).through(LABELLED)
    torch.testing.assert_close(likelihood_matching(MIXTURE.score)(reading), each[:32].mean())
    original = likelihood_matching(MIXTURE.score, sigma_power=0.0, per_dimension=True)(reading)
    torch.testing.assert_close(original, (each / batch.sigma**2 / 2)[:32].mean())


def test_the_jacobian_estimate_is_unbiased():
    batch = perturbed(MIXTURE, 50, (0.5, 5.0))
    x = batch.x.clone().requires_grad_()
    rows = [torch.autograd.grad(MIXTURE.log_joint(x, batch.sigma)[:, c].sum(), x)[0] for c in range(3)]
    exact = 0.5 * sum(row.square().sum(1) for row in rows).mean()
    reading = Reading(MIXTURE.log_joint, batch)
    torch.testing.assert_close(jacobian(None)(reading), exact)
    estimates = torch.stack([jacobian(1)(reading).detach() for _ in range(400)])
    assert (estimates.mean() - exact).abs() < 4 * estimates.std() / 20
    assert estimates.std() > 0


def test_recovery_phases_cancel_when_the_model_is_exact():
    """The chain then samples the true posterior, so data and made examples have the same distribution."""
    batch = perturbed(MIXTURE, 30_000, (0.1, 5.0))
    noise = Noise(0.3, 5.0)
    exact = recovery_likelihood(noise, levels=6, steps=60)(Reading(MIXTURE.log_joint, batch)).item()
    wrong = recovery_likelihood(noise, levels=6, steps=60)(
        Reading(lambda x, s: 2 * MIXTURE.log_joint(x, s), batch)
    ).item()
    assert abs(exact) < 0.03
    assert abs(wrong) > 0.2


def test_langevin_samples_the_posterior_of_a_gaussian():
    """Prior N(0, 1 + σ²) seen through N(x̃ − x, δ²): posterior mean and variance in closed form."""
    sigma, delta, v = torch.full((40_000,), 0.5), torch.full((40_000,), 0.8), 1 + 0.25
    noisier = torch.full((40_000, 1), 1.5)
    made = langevin(lambda x, s: -x.square() / (2 * v), noisier, sigma, delta, steps=200)
    variance = 1 / (1 / v + 1 / 0.64)
    assert float(made.mean()) == pytest.approx(variance * 1.5 / 0.64, abs=0.02)
    assert float(made.var()) == pytest.approx(variance, rel=0.06)


def test_naive_energy_prefers_data_to_what_its_chains_make():
    """A model that puts its mass elsewhere is pulled to the data: the loss falls when mass moves there."""
    batch = perturbed(MIXTURE, 400, (0.5, 2.0))
    shift = torch.tensor([3.0, 0.0], dtype=torch.float64)
    term = naive_energy(Noise(0.5, 2.0))
    loss = term(Reading(lambda x, s: MIXTURE.log_joint(x - shift, s), batch))
    assert loss.item() > 0.5
    assert abs(naive_energy(Noise(0.5, 2.0))(Reading(MIXTURE.log_joint, batch)).item()) < loss.item()


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_the_attack_raises_the_loss_and_stays_in_its_ball(epsilon):
    batch = perturbed(MIXTURE, 500, (0.1, 1.0))
    radius = torch.full((500,), epsilon, dtype=torch.float64)
    moved = attack(MIXTURE.log_joint, batch.x, batch.sigma, batch.y, radius, steps=7)
    distance = (moved - batch.x).norm(dim=1)
    assert (distance <= epsilon * (1 + 1e-9)).all()
    before, after = (
        F.cross_entropy(MIXTURE.log_joint(x, batch.sigma), batch.y, reduction="none") for x in (batch.x, moved)
    )
    right = MIXTURE.log_joint(batch.x, batch.sigma).argmax(-1) == batch.y
    assert (after[right] >= before[right] - 1e-9).all()
    assert after[right].mean() > 1.2 * before[right].mean()
    assert torch.equal(moved[~right], batch.x[~right]), "what is already wrong does not move"


def test_robust_cross_entropy_grows_with_its_radius():
    reading = Reading(MIXTURE.log_joint, perturbed(MIXTURE, 200, (0.1, 5.0)))
    none, some = (robust_cross_entropy(e)(reading).item() for e in (0.0, 0.5))
    growing = robust_cross_entropy(0.5, grow_from=0.5)(reading).item()
    assert none == pytest.approx(cross_entropy()(reading).item())
    assert none < some < growing
