"""From a network to a score: the forms, each against what it must give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from selfcal.nets.forms import EDM, VE, ScoreModel


class Wave(nn.Module):
    def forward(self, x, level):
        return torch.sin(x + level[:, None])


def test_the_papers_form_is_the_network_over_sigma():
    x, sigma = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0.02, 0.1, 1.0, 10.0, 100.0], dtype=torch.float64)
    expected = torch.sin(x + sigma[:, None] / 2) / sigma[:, None]
    torch.testing.assert_close(ScoreModel(Wave(), VE())(x, sigma), expected)


@pytest.mark.parametrize("form", [EDM(0.5), VE()])
def test_each_form_weighs_the_networks_own_error_alike(form):
    """weight · ½‖σ s + z‖² = ½‖F − what F should be‖² at every σ."""
    sigma = torch.tensor([0.02, 0.5, 3.0, 100.0], dtype=torch.float64)
    c = form(sigma)
    torch.testing.assert_close(form.weight(sigma) * (c.out / sigma) ** 2, torch.ones(4, dtype=torch.float64))
