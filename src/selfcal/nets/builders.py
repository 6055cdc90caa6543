"""From settings to networks. A kind of network is a row: how it denoises, how it classifies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from selfcal.config import NetworkSettings, Settings
from selfcal.errors import SelfcalError
from selfcal.nets.classifier import Classifier, EncoderHead, small
from selfcal.nets.forms import EDM, VE, Form, ScoreModel
from selfcal.nets.mlp import MLP, size
from selfcal.nets.ncsnpp import Encoder, NCSNpp

Shape = tuple[int, ...]
Build = Callable[[NetworkSettings, Shape, int], nn.Module]
"""One network's settings, the shape of an example, the number of classes -> the network."""


@dataclass(frozen=True)
class Kind:
    """A row of the table of networks; a denoiser is told the class where there are classes."""

    denoiser: Build
    classifier: Build


def mlp_denoiser(net: NetworkSettings, shape: Shape, classes: int) -> nn.Module:
    n = size(shape)
    return MLP(n, n, width=net.width, blocks=net.blocks, dropout=net.dropout, classes=classes)


def mlp_classifier(net: NetworkSettings, shape: Shape, classes: int) -> nn.Module:
    trunk = MLP(size(shape), classes, width=net.width, blocks=net.blocks, dropout=net.dropout)
    small(trunk.leave)
    return trunk


def ncsnpp_denoiser(net: NetworkSettings, shape: Shape, classes: int) -> nn.Module:
    return NCSNpp(shape[0], classes=classes, **unet_keywords(net, shape))


def ncsnpp_classifier(net: NetworkSettings, shape: Shape, classes: int) -> nn.Module:
    return EncoderHead(Encoder(shape[0], **unet_keywords(net, shape)), classes)


def unet_keywords(net: NetworkSettings, shape: Shape) -> dict[str, Any]:
    """The U-Net's own words; refuses shapes it cannot halve."""
    if len(shape) != 3:
        raise SelfcalError("the network ncsnpp is for images; for points set network=mlp")
    halvings = len(net.multipliers) - 1
    if any(side % 2**halvings for side in shape[1:]):
        raise SelfcalError(
            f"images of {shape[2]}×{shape[1]} pixels cannot be halved {halvings} times, as the ncsnpp network with "
            f"{len(net.multipliers)} multipliers does; give it fewer, for instance multipliers=1,2"
        )
    return {
        "width": net.width,
        "multipliers": net.multipliers,
        "blocks": net.blocks,
        "attention": [level for level in range(halvings + 1) if shape[1] // 2**level in net.attention],
        "dropout": net.dropout,
        "fourier_scale": net.fourier_scale,
    }


KINDS: dict[str, Kind] = {
    "mlp": Kind(mlp_denoiser, mlp_classifier),
    "ncsnpp": Kind(ncsnpp_denoiser, ncsnpp_classifier),
}


def form_of(net: NetworkSettings, settings: Settings) -> Form:
    forms: dict[str, Form] = {"edm": EDM(settings.noise.sigma_data), "ve": VE()}
    return forms[net.form]


def build_score(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    net = settings.score
    return ScoreModel(KINDS[net.network].denoiser(net, shape, 0), form_of(net, settings))


def build_conditional(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    """Takes y too; −1 is the null token."""
    net = settings.conditional
    return ScoreModel(KINDS[net.network].denoiser(net, shape, classes), form_of(net, settings))


def build_classifier(settings: Settings, shape: Shape, classes: int) -> Classifier:
    net = settings.classifier
    return Classifier(KINDS[net.network].classifier(net, shape, classes), settings.noise.sigma_data)


def without_memory(build: Callable[..., nn.Module], *arguments: Any) -> nn.Module:
    """The network's shapes alone: to check settings before work begins, and to count."""
    with torch.device("meta"):
        return build(*arguments)
