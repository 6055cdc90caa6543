"""Forms of models trained elsewhere: exact networks of Gaussian data must give its exact score."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from selfcal.nets.foreign import Clean, EDMEpsilon, EDMVelocity, Epsilon, UnitScore, Velocity
from selfcal.nets.forms import ScoreModel


class Exact(nn.Module):
    """F of a form for data N(0, s²), told as the form tells it: inverted from D = s² x/(s² + σ²)."""

    def __init__(self, form, sigma, s=0.7):
        super().__init__()
        self.form, self.sigma, self.s = form, sigma, s

    def forward(self, x, level):
        c = self.form(self.sigma[:, None])
        torch.testing.assert_close(level, c.noise.flatten())
        noisy = x * c.shrink
        return (self.s**2 / (self.s**2 + self.sigma[:, None] ** 2) * noisy - c.skip * noisy) / c.out


LADDER = tuple(torch.linspace(-4, 5, 1000).exp().tolist())


@pytest.mark.parametrize(
    "form", [Epsilon(LADDER), Velocity(LADDER), Clean(LADDER), EDMEpsilon(), EDMVelocity(), UnitScore()]
)
def test_every_form_gives_the_exact_score(form):
    sigma = torch.tensor([0.05, 0.5, 3.0, 50.0], dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(ScoreModel(Exact(form, sigma), form)(x, sigma), -x / (0.49 + sigma[:, None] ** 2))


def test_what_ddpm_networks_predict():
    """From x₀ and z themselves: the noise, the velocity, the image."""
    x0, z, sigma = (
        torch.randn(3, 5, dtype=torch.float64),
        torch.randn(3, 5, dtype=torch.float64),
        torch.tensor([0.1, 1, 9.0]).double(),
    )
    s = sigma[:, None]
    root_alpha = 1 / (1 + s**2).sqrt()
    velocity = root_alpha * z - s * root_alpha * x0
    for form, predicted in ((Epsilon(LADDER), z), (Velocity(LADDER), velocity), (Clean(LADDER), x0)):
        c = form(s)
        x = x0 + s * z
        torch.testing.assert_close(x / c.shrink, root_alpha * x0 + s * root_alpha * z)
        torch.testing.assert_close(c.skip * x + c.out * predicted, x0)


def test_levels_between_two_numbers_are_fractions():
    form = Epsilon((0.1, 1.0, 10.0))
    sigma = torch.tensor([0.01, 0.1, math.sqrt(0.1), 1.0, 10.0, 99.0])
    torch.testing.assert_close(form.number(sigma), torch.tensor([0.0, 0.0, 0.5, 1.0, 2.0, 2.0]))
