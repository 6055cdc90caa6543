from __future__ import annotations

import math

import pytest
import torch

from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import like


def test_sigma_is_log_uniform():
    sigma = Noise(0.02, 10.0).draw(200_000, torch.Generator().manual_seed(0)).log()
    low, high = math.log(0.02), math.log(10)
    assert sigma.min() >= low - 1e-6
    assert sigma.max() <= high + 1e-6
    assert float(sigma.mean()) == pytest.approx((low + high) / 2, abs=0.02)
    assert float(sigma.var()) == pytest.approx((high - low) ** 2 / 12, rel=0.02)


def test_sigma_gathers_around_a_centre_within_the_range():
    """Against a normal ln σ of which draws outside the range are thrown away."""
    sigma = Noise(0.02, 10.0, centre=2.0, spread=1.3).draw(200_000, torch.Generator().manual_seed(0)).log()
    drawn = math.log(2.0) + 1.3 * torch.randn(400_000, generator=torch.Generator().manual_seed(1))
    kept = drawn[(drawn > math.log(0.02)) & (drawn < math.log(10))]
    assert float(sigma.max()) <= math.log(10) + 1e-6
    for q in (0.01, 0.1, 0.5, 0.9, 0.99):
        assert float(sigma.quantile(q)) == pytest.approx(float(kept.quantile(q)), abs=0.03)


@pytest.mark.parametrize("shape", [(2,), (1, 8, 8), (3, 4, 4)])
def test_perturb_is_dimension_free_and_consistent(shape):
    x0, y = torch.rand(5, *shape), torch.arange(5)
    batch = Noise(0.1, 2.0).perturb(x0, y, torch.Generator().manual_seed(1))
    assert batch.x.shape == x0.shape
    torch.testing.assert_close(batch.x, x0 + like(batch.sigma, x0) * batch.z)
    again = Noise(0.1, 2.0).perturb(x0, y, torch.Generator().manual_seed(1))
    assert torch.equal(batch.x, again.x)


def test_levels_fall_from_sigma_max_to_sigma_min_to_zero():
    noise = Noise(0.02, 10.0)
    for levels in (noise.geometric(10), noise.karras(10)):
        assert len(levels) == 11
        assert (levels.diff() < 0).all()
        assert float(levels[0]) == pytest.approx(10)
        assert float(levels[-2]) == pytest.approx(0.02)
        assert float(levels[-1]) == 0
    ratios = noise.geometric(10)[:-1]
    torch.testing.assert_close(ratios[1:] / ratios[:-1], torch.full((9,), (0.02 / 10) ** (1 / 9)))
    # Karras et al. 2022, eq. 5, at the middle of three levels
    middle = ((10 ** (1 / 7) + 0.02 ** (1 / 7)) / 2) ** 7
    assert float(noise.karras(3)[1]) == pytest.approx(middle, rel=1e-5)
