"""The noise process  x_σ = x₀ + σ z  (variance exploding), the only one in selfcal.

σ is its own clock: every model takes σ, never t. With t ~ U(0, 1) and
σ(t) = σ_min (σ_max/σ_min)^t, as in the paper, ln σ is uniform; short trainings gain by drawing
more often where images take shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfcal.diffusion.scores import like

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Noisy:
    """A perturbed batch, x = x0 + sigma z; y is UNLABELED (-1) where the label is hidden."""

    x0: Tensor
    y: Tensor
    sigma: Tensor
    z: Tensor
    x: Tensor


@dataclass(frozen=True)
class Noise:
    """The range of σ, how it is drawn in training and how it is walked down in sampling."""

    sigma_min: float
    sigma_max: float
    centre: float | None = None  # the σ around which training draws; None: ln σ is uniform
    spread: float = 1.2  # standard deviation of ln σ around its centre

    def draw(self, count: int, rng: torch.Generator | None = None) -> Tensor:
        """(count,): ln σ uniform, or ~ N(ln centre, spread²) cut off at both ends (Karras et al. 2022)."""
        import torch  # here: a row of the method table is described without it

        t = torch.rand(count, generator=rng)
        if self.centre is None:
            return self.sigma_min * (self.sigma_max / self.sigma_min) ** t
        ends = torch.tensor([self.sigma_min, self.sigma_max], dtype=torch.float64)
        low, high = torch.special.ndtr((ends / self.centre).log() / self.spread)
        deviations = torch.special.ndtri(low + t.double() * (high - low))
        return (self.centre * (self.spread * deviations).exp()).clamp(self.sigma_min, self.sigma_max).float()

    def perturb(self, x0: Tensor, y: Tensor, rng: torch.Generator | None = None) -> Noisy:
        """Every example with a σ and a noise of its own."""
        import torch

        sigma = self.draw(len(x0), rng)
        z = torch.randn(x0.shape, generator=rng)
        return Noisy(x0, y, sigma, z, x0 + like(sigma, x0) * z)

    def geometric(self, steps: int) -> Tensor:
        """`steps` levels with equal ratios from σ_max to σ_min, then 0: the paper's discretisation."""
        import torch

        t = torch.linspace(1, 0, steps, dtype=torch.float64)
        sigmas = self.sigma_min * (self.sigma_max / self.sigma_min) ** t
        return torch.cat([sigmas, sigmas.new_zeros(1)]).float()

    def karras(self, steps: int, rho: float = 7.0) -> Tensor:
        """`steps` levels from σ_max to σ_min, denser near σ_min (Karras et al. 2022, eq. 5), then 0."""
        import torch

        t = torch.linspace(0, 1, steps, dtype=torch.float64)
        low, high = self.sigma_min ** (1 / rho), self.sigma_max ** (1 / rho)
        sigmas = (high + t * (low - high)) ** rho
        return torch.cat([sigmas, sigmas.new_zeros(1)]).float()
