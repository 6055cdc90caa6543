"""From settings to networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from selfcal.core.errors import look_up
from selfcal.core.settings import NetworkSettings, Settings
from selfcal.nets.classifier import Classifier
from selfcal.nets.forms import Form, ScoreModel
from selfcal.nets.recipes import FORMS, KINDS, Recipe, Shape, make_classifier, make_form, make_score_model


def network_recipe(net: NetworkSettings, shape: Shape, classes: int) -> Recipe:
    return net.network, look_up("network", net.network, KINDS).keywords(net, shape, classes)


def form_recipe(net: NetworkSettings, settings: Settings) -> Recipe:
    return net.form, look_up("form", net.form, FORMS).keywords(net, settings.noise.sigma_data)


def form_of(net: NetworkSettings, settings: Settings) -> Form:
    return make_form(form_recipe(net, settings))


def build_score(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    net = settings.score
    return make_score_model(network_recipe(net, shape, 0), form_recipe(net, settings))


def build_conditional(settings: Settings, shape: Shape, classes: int) -> ScoreModel:
    """Takes y too; −1 is the null token."""
    net = settings.conditional
    return make_score_model(network_recipe(net, shape, classes), form_recipe(net, settings))


def build_classifier(settings: Settings, shape: Shape, classes: int) -> Classifier:
    return make_classifier(network_recipe(settings.classifier, shape, classes), settings.noise.sigma_data)


def without_memory(build: Callable[..., nn.Module], *arguments: Any) -> nn.Module:
    """The network's shapes alone: to check settings before work begins, and to count."""
    with torch.device("meta"):
        return build(*arguments)
