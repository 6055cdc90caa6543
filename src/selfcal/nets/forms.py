"""How a network becomes a score model:  D = c_skip x + c_out F(c_in x, c_noise),  s = (D − x)/σ².

The four coefficients are Karras et al. 2022's (table 1). A form also says how denoising score
matching weighs σ: always so that the error of F itself counts alike at every σ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from selfcal.diffusion.scores import like


class Coefficients(NamedTuple):
    skip: Tensor | float
    out: Tensor
    shrink: Tensor | float  # 1/c_in
    noise: Tensor  # what the network is told of σ


class Form:
    def __call__(self, sigma: Tensor) -> Coefficients:
        raise NotImplementedError

    def weight(self, sigma: Tensor) -> Tensor:
        """σ²/c_out²: what makes ½‖σ s + z‖² the squared error of F."""
        return (sigma / self(sigma).out) ** 2


@dataclass(frozen=True)
class EDM(Form):
    """Inputs and targets of unit variance whatever σ is, for data of spread σ_d."""

    sigma_data: float = 0.5

    def __call__(self, sigma: Tensor) -> Coefficients:
        d = self.sigma_data
        total = (sigma**2 + d**2).sqrt()
        return Coefficients((d / total) ** 2, sigma * d / total, total, sigma)

    def weight(self, sigma: Tensor) -> Tensor:
        return 1 + (sigma / self.sigma_data) ** 2


@dataclass(frozen=True)
class VE(Form):
    """The paper's, as in score_sde: s = F(x, σ)/σ, with λ(t) = σ² and nothing more.

    There the data lies in [0, 1], and the network is told σ in those units: half of ours.
    """

    def __call__(self, sigma: Tensor) -> Coefficients:
        return Coefficients(1.0, sigma, 1.0, sigma / 2)


class ScoreModel(nn.Module):
    """s(x, σ[, y]) of a network F(x, σ[, y]) in one of the forms."""

    def __init__(self, network: nn.Module, form: Form) -> None:
        super().__init__()
        self.network = network
        self.form = form

    def denoise(self, x: Tensor, sigma: Tensor, *y: Tensor) -> Tensor:
        c = self.form(like(sigma, x))
        return c.skip * x + c.out * self.network(x / c.shrink, c.noise.flatten(), *y).view_as(x)

    def forward(self, x: Tensor, sigma: Tensor, *y: Tensor) -> Tensor:
        return (self.denoise(x, sigma, *y) - x) / like(sigma, x) ** 2
