"""The noise-aware classifier f(x, y, σ), whose logits are also read as an energy."""

from __future__ import annotations

from torch import Tensor, nn

from selfcal.config import Settings
from selfcal.nets.mlp import MLP, size
from selfcal.noise import like


class Classifier(nn.Module):
    """(B, *), (B,) -> logits (B, K) from c_in x, in fp32 and unscaled: the calibration acts on them as they are.

    logsumexp of the logits must behave like log p_σ(x): a common offset of the order of the
    dimension with class differences of order one, which half precision would destroy.
    """

    def __init__(self, network: nn.Module, sigma_data: float) -> None:
        super().__init__()
        self.network = network
        self.sigma_data = sigma_data

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        total = (like(sigma, x) ** 2 + self.sigma_data**2).sqrt()
        return self.network(x / total, sigma).float()


def build_classifier(settings: Settings, shape: tuple[int, ...], classes: int) -> Classifier:
    net = settings.classifier
    trunk = MLP(size(shape), classes, width=net.width, blocks=net.blocks, dropout=net.dropout)
    # Small, not zero: with zero logits the inner score and every gradient into the trunk would be zero.
    nn.init.normal_(trunk.leave.weight, std=0.01)
    nn.init.zeros_(trunk.leave.bias)
    return Classifier(trunk, settings.noise.sigma_data)
