"""From settings to networks; the networks' code, and torch with it, is imported when the first one is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from selfcal.core.errors import look_up
from selfcal.core.settings import NetworkSettings, Settings

if TYPE_CHECKING:
    from torch import nn

    from selfcal.nets.classifier import Classifier
    from selfcal.nets.forms import Form, ScoreModel
    from selfcal.nets.recipes import Recipe, Shape


def network_recipe(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    from selfcal.nets.recipes import KINDS

    return net.network, look_up("network", net.network, KINDS).keywords(net, shape, classes)


def form_recipe(net: NetworkSettings, settings: Settings) -> Recipe:
    from selfcal.nets.recipes import FORMS

    return net.form, look_up("form", net.form, FORMS).keywords(net, settings.noise.sigma_data)


def form_of(net: NetworkSettings, settings: Settings) -> Form:
    from selfcal.nets.recipes import make_form

    return make_form(form_recipe(net, settings))


def build_score(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    from selfcal.nets.recipes import make_score_model

    net = settings.score
    return make_score_model(network_recipe(net, shape, 0), form_recipe(net, settings))


def build_conditional(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    """Takes y too; −1 is the null token."""
    from selfcal.nets.recipes import make_score_model

    net = settings.conditional
    return make_score_model(network_recipe(net, shape, classes), form_recipe(net, settings))


def build_classifier(settings: Settings, shape: Shape, classes: int) -> Classifier:
    from selfcal.nets.recipes import make_classifier

    return make_classifier(network_recipe(settings.classifier, shape, classes), settings.noise.sigma_data)


def without_memory(build: Callable[..., nn.Module], *arguments: Any) -> nn.Module:
    """The network's shapes alone: to check settings before work begins, and to count."""
    import torch

    with torch.device("meta"):
        return build(*arguments)
