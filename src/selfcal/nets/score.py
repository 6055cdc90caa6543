"""Score models in EDM form (Karras et al. 2022, table 1), unconditional and class-conditional."""

from __future__ import annotations

from torch import Tensor, nn

from selfcal.config import NetworkSettings, Settings
from selfcal.nets.mlp import MLP, size
from selfcal.noise import like


class ScoreModel(nn.Module):
    """s(x, σ[, y]) = (D − x)/σ²  with  D = c_skip x + c_out F(c_in x, σ[, y]).

    c_in keeps the network's input at unit variance, c_out its target, whatever σ is.
    """

    def __init__(self, network: nn.Module, sigma_data: float) -> None:
        super().__init__()
        self.network = network
        self.sigma_data = sigma_data

    def denoise(self, x: Tensor, sigma: Tensor, *y: Tensor) -> Tensor:
        s, d = like(sigma, x), self.sigma_data
        total = (s**2 + d**2).sqrt()
        out = self.network(x / total, sigma, *y).view_as(x)
        return (d / total) ** 2 * x + (s * d / total) * out

    def forward(self, x: Tensor, sigma: Tensor, *y: Tensor) -> Tensor:
        return (self.denoise(x, sigma, *y) - x) / like(sigma, x) ** 2


def build_score(settings: Settings, shape: tuple[int, ...], classes: int) -> ScoreModel:
    return _build(settings.score, settings, shape, classes=0)


def build_conditional(settings: Settings, shape: tuple[int, ...], classes: int) -> ScoreModel:
    """Takes y too; −1 is the null token."""
    return _build(settings.conditional, settings, shape, classes)


def _build(net: NetworkSettings, settings: Settings, shape: tuple[int, ...], classes: int) -> ScoreModel:
    numbers = size(shape)
    trunk = MLP(numbers, numbers, width=net.width, blocks=net.blocks, dropout=net.dropout, classes=classes)
    return ScoreModel(trunk, settings.noise.sigma_data)
