"""From settings to networks. A kind of network is a row: how it denoises, how it classifies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import NetworkSettings, Settings
from selfcal.nets.classifier import Classifier
from selfcal.nets.forms import Form, ScoreModel
from selfcal.nets.mlp import size
from selfcal.nets.recipes import Recipe, make_classifier, make_form, make_score_model

Shape = tuple[int, ...]
Describe = Callable[[NetworkSettings, Shape, int], Recipe]
"""One network's settings, the shape of an example, the number of classes -> its recipe."""


@dataclass(frozen=True)
class Kind:
    """A row of the table of networks; a denoiser is told the class where there are classes."""

    denoiser: Describe
    classifier: Describe


def mlp_denoiser(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    n = size(shape)
    return "mlp", {"inputs": n, "outputs": n, "classes": classes, **mlp_keywords(net)}


def mlp_classifier(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    return "mlp-classifier", {"inputs": size(shape), "outputs": classes, **mlp_keywords(net)}


def mlp_keywords(net: NetworkSettings) -> dict[str, Any]:
    return {"width": net.width, "blocks": net.blocks, "dropout": net.dropout}


def ncsnpp_denoiser(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    return "ncsnpp", {"classes": classes, **unet_keywords(net, shape)}


def ncsnpp_classifier(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    return "ncsnpp-classifier", {"classes": classes, **unet_keywords(net, shape)}


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
        "channels": shape[0],
        "width": net.width,
        "multipliers": list(net.multipliers),
        "blocks": net.blocks,
        "attention": [level for level in range(halvings + 1) if shape[1] // 2**level in net.attention],
        "dropout": net.dropout,
        "fourier_scale": net.fourier_scale,
    }


def adopted_denoiser(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    from selfcal.interop.diffusers import unet_recipe

    return unet_recipe(net.adopted)


def no_adopted_classifier(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    raise SelfcalError("an adopted network is a score model; for the classifier set network=mlp or network=ncsnpp")


KINDS: dict[str, Kind] = {
    "mlp": Kind(mlp_denoiser, mlp_classifier),
    "ncsnpp": Kind(ncsnpp_denoiser, ncsnpp_classifier),
    "adopted": Kind(adopted_denoiser, no_adopted_classifier),
}


def adopted_form(net: NetworkSettings, settings: Settings) -> Recipe:
    from selfcal.interop.diffusers import form_recipe

    return form_recipe(net.adopted)


FORM_RECIPES: dict[str, Callable[[NetworkSettings, Settings], Recipe]] = {
    "edm": lambda net, settings: ("edm", {"sigma_data": settings.noise.sigma_data}),
    "ve": lambda net, settings: ("ve", {}),
    "adopted": adopted_form,
}


def form_of(net: NetworkSettings, settings: Settings) -> Form:
    return make_form(FORM_RECIPES[net.form](net, settings))


def score_recipes(net: NetworkSettings, settings: Settings, shape: Shape, classes: int) -> tuple[Recipe, Recipe]:
    """Of the network and of the form."""
    return KINDS[net.network].denoiser(net, shape, classes), FORM_RECIPES[net.form](net, settings)


def build_score(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    return make_score_model(*score_recipes(settings.score, settings, shape, 0))


def build_conditional(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    """Takes y too; −1 is the null token."""
    return make_score_model(*score_recipes(settings.conditional, settings, shape, classes))


def build_classifier(settings: Settings, shape: Shape, classes: int) -> Classifier:
    net = settings.classifier
    return make_classifier(KINDS[net.network].classifier(net, shape, classes), settings.noise.sigma_data)


def without_memory(build: Callable[..., nn.Module], *arguments: Any) -> nn.Module:
    """The network's shapes alone: to check settings before work begins, and to count."""
    with torch.device("meta"):
        return build(*arguments)
