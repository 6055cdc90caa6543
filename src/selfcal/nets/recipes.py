"""A network by a name and plain keywords, so that it can be written down as JSON and made again anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from selfcal.nets.classifier import Classifier, EncoderHead, small
from selfcal.nets.foreign import Clean, EDMEpsilon, EDMVelocity, Epsilon, UNet, UnitScore, Velocity
from selfcal.nets.forms import EDM, VE, Form, ScoreModel
from selfcal.nets.mlp import MLP
from selfcal.nets.ncsnpp import Encoder, NCSNpp


def mlp_classifier(**keywords: Any) -> nn.Module:
    trunk = MLP(**keywords)
    small(trunk.leave)
    return trunk


def ncsnpp_classifier(classes: int, **keywords: Any) -> nn.Module:
    return EncoderHead(Encoder(**keywords), classes)


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "mlp-classifier": mlp_classifier,
    "ncsnpp": NCSNpp,
    "ncsnpp-classifier": ncsnpp_classifier,
    "unet2d": UNet,
}

FORMS: dict[str, Callable[..., Form]] = {
    "edm": EDM,
    "ve": VE,
    "epsilon": Epsilon,
    "v_prediction": Velocity,
    "sample": Clean,
    "edm-epsilon": EDMEpsilon,
    "edm-v_prediction": EDMVelocity,
    "unit-score": UnitScore,
}

Recipe = tuple[str, Mapping[str, Any]]
"""A row of one of the tables above, and its keywords."""


def make_network(recipe: Recipe) -> nn.Module:
    return NETWORKS[recipe[0]](**recipe[1])


def make_form(recipe: Recipe) -> Form:
    return FORMS[recipe[0]](**recipe[1])


def make_score_model(network: Recipe, form: Recipe) -> ScoreModel:
    return ScoreModel(make_network(network), make_form(form))


def make_classifier(network: Recipe, sigma_data: float) -> Classifier:
    return Classifier(make_network(network), sigma_data)
