"""Networks and forms of models trained with diffusers, as scores of (x, σ) in our units.

A variance-preserving model (DDPM) sees x_t = √ᾱ x₀ + √(1−ᾱ) z, which is x_σ/√(1+σ²) with
σ² = (1−ᾱ)/ᾱ: rescaling its input is all it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.nets.forms import EDM, Coefficients, Form


@dataclass(frozen=True)
class Ladder(Form):
    """Of a model with numbered noise levels: σ becomes its number, between two levels a fraction."""

    sigmas: tuple[float, ...]  # ascending, σ of level 0, 1, …

    @cached_property
    def logs(self) -> Tensor:
        return torch.tensor(self.sigmas, dtype=torch.float64, device="cpu").log()

    def number(self, sigma: Tensor) -> Tensor:
        logs, wanted = self.logs.to(sigma.device), sigma.double().log()
        above = torch.searchsorted(logs, wanted.contiguous()).clamp(1, len(logs) - 1)
        low, high = logs[above - 1], logs[above]
        return (above - 1 + ((wanted - low) / (high - low)).clamp(0, 1)).to(sigma.dtype)


class Epsilon(Ladder):
    """F predicts the noise: D = x − σ F."""

    def __call__(self, sigma: Tensor) -> Coefficients:
        return Coefficients(1.0, -sigma, (1 + sigma**2).sqrt(), self.number(sigma))


class Velocity(Ladder):
    """F predicts v = √ᾱ z − √(1−ᾱ) x₀ (Salimans & Ho 2022): D = √ᾱ x_t − √(1−ᾱ) F."""

    def __call__(self, sigma: Tensor) -> Coefficients:
        total = (1 + sigma**2).sqrt()
        return Coefficients(total**-2, -sigma / total, total, self.number(sigma))


class Clean(Ladder):
    """F predicts x₀ itself."""

    def __call__(self, sigma: Tensor) -> Coefficients:
        return Coefficients(0.0, torch.ones_like(sigma), (1 + sigma**2).sqrt(), self.number(sigma))


class EDMEpsilon(EDM):
    """Karras et al.'s own: the network is told ln(σ)/4."""

    def __call__(self, sigma: Tensor) -> Coefficients:
        return super().__call__(sigma)._replace(noise=sigma.log() / 4)


class EDMVelocity(EDMEpsilon):
    """The same with the network's sign turned round, diffusers' "v_prediction" of EDM schedulers."""

    def __call__(self, sigma: Tensor) -> Coefficients:
        coefficients = super().__call__(sigma)
        return coefficients._replace(out=-coefficients.out)


@dataclass(frozen=True)
class UnitScore(Form):
    """F is itself a score, of data in [0, 1]: there σ is half of ours, and scores are twice ours."""

    def __call__(self, sigma: Tensor) -> Coefficients:
        return Coefficients(1.0, sigma**2 / 2, 1.0, sigma / 2)


class UNet(nn.Module):
    """diffusers' UNet2DModel as a network F(x, level)."""

    def __init__(self, config: dict[str, Any], unit_interval: bool = False) -> None:
        super().__init__()
        from diffusers import UNet2DModel  # only those who adopt a model need it

        self.unet = UNet2DModel(**config)
        self.unit_interval = unit_interval

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        """unit_interval: the model was trained on pixels in [0, 1]."""
        out: Tensor = self.unet((x + 1) / 2 if self.unit_interval else x, level).sample
        return out


PREDICTIONS: dict[str, Callable[..., Form]] = {
    "epsilon": Epsilon,
    "v_prediction": Velocity,
    "sample": Clean,
    "edm-epsilon": EDMEpsilon,
    "edm-v_prediction": EDMVelocity,
    "unit-score": UnitScore,
}


def foreign_form(predicts: str, **keywords: Any) -> Form:
    """The form of a network by what it predicts."""
    return PREDICTIONS[predicts](**{k: tuple(v) if isinstance(v, list) else v for k, v in keywords.items()})
