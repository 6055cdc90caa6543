"""The unconditional score model, in EDM form (Karras et al. 2022, table 1)."""

from __future__ import annotations

from torch import Tensor, nn

from selfcal.config import Settings
from selfcal.nets.mlp import MLP, size
from selfcal.noise import like


class ScoreModel(nn.Module):
    """s(x, σ) = (D(x, σ) − x)/σ²  with  D = c_skip x + c_out F(c_in x, σ).

    c_in keeps the network's input at unit variance, c_out its target, whatever σ is.
    """

    def __init__(self, network: nn.Module, sigma_data: float) -> None:
        super().__init__()
        self.network = network
        self.sigma_data = sigma_data

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        s, d = like(sigma, x), self.sigma_data
        total = (s**2 + d**2).sqrt()
        out = self.network(x / total, sigma).view_as(x)
        return (d / total) ** 2 * x + (s * d / total) * out

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return (self.denoise(x, sigma) - x) / like(sigma, x) ** 2


def build_score(settings: Settings, shape: tuple[int, ...]) -> ScoreModel:
    net, numbers = settings.score, size(shape)
    trunk = MLP(numbers, numbers, width=net.width, blocks=net.blocks, dropout=net.dropout)
    return ScoreModel(trunk, settings.noise.sigma_data)
