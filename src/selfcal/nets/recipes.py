"""The kinds of network and of form, a row each. A recipe is a row's name and plain keywords, so that a network
can be written down as JSON and made again anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from selfcal.core.errors import SelfcalError, look_up
from selfcal.nets.classifier import HEADS, Classifier, small
from selfcal.nets.foreign import UNet, foreign_form
from selfcal.nets.foreign_encoder import AdoptedEncoder, quietened
from selfcal.nets.foreign_schedules import Keywords, form_keywords, network_keywords
from selfcal.nets.forms import EDM, VE, Form, ScoreModel
from selfcal.nets.mlp import MLP, size
from selfcal.nets.ncsnpp import Encoder, NCSNpp
from selfcal.nets.own_module import Elsewhere, own_form
from selfcal.nets.patches import PatchesIn, PatchesInAndOut

Shape = Sequence[int]
Net = Any
"""A network's section of core/settings.py, which is not imported: exported pipelines carry this file, not settings."""
Recipe = tuple[str, Mapping[str, Any]]
"""A row of one of the tables below, and its keywords."""


@dataclass(frozen=True)
class Kind:
    """A row of the table of networks: its keywords from settings, what makes its denoiser and its classifier.

    A denoiser is told the class where there are classes; a classifier gives a logit for each.
    """

    keywords: Callable[[Net, Shape, int], Keywords]
    denoiser: Callable[..., nn.Module]
    classifier: Callable[..., nn.Module]


# --- mlp ------------------------------------------------------------------------------------------


def mlp_keywords(net: Net, shape: Shape, classes: int) -> Keywords:
    own = {"width": net.width, "blocks": net.blocks, "dropout": net.dropout}
    return {"inputs": size(shape), "classes": classes, **own}


def mlp_denoiser(inputs: int, **keywords: Any) -> nn.Module:
    return MLP(inputs, inputs, **keywords)


def mlp_classifier(inputs: int, classes: int, **keywords: Any) -> nn.Module:
    trunk = MLP(inputs, classes, **keywords)
    small(trunk.leave)
    return trunk


# --- ncsnpp ---------------------------------------------------------------------------------------


def ncsnpp_keywords(net: Net, shape: Shape, classes: int) -> Keywords:
    """The U-Net's own words."""
    if len(shape) != 3:
        raise SelfcalError("the network ncsnpp is for images; for points set network=mlp")
    if any(side % net.patch for side in shape[1:]):
        raise SelfcalError(f"images of {shape[2]}×{shape[1]} pixels cannot be cut into patches of {net.patch}")
    levels = range(len(net.multipliers))
    return {
        "shape": list(shape),
        "patch": net.patch,
        "head": net.head,
        "classes": classes,
        "width": net.width,
        "multipliers": list(net.multipliers),
        "blocks": net.blocks,
        "attention": [level for level in levels if shape[1] // (net.patch * 2**level) in net.attention],
        "dropout": net.dropout,
        "fourier_scale": net.fourier_scale,
    }


def ncsnpp_denoiser(shape: Shape, patch: int, head: str, **keywords: Any) -> nn.Module:
    """A head is for classifiers. What is halved on the way down must be doubled to the same size on the way up."""
    halvings = len(keywords["multipliers"]) - 1
    if any(side % (patch * 2**halvings) for side in shape[1:]):
        entry = "" if patch == 1 else f"cut into patches of {patch} and then "
        raise SelfcalError(
            f"images of {shape[2]}×{shape[1]} pixels cannot be {entry}halved {halvings} times, as the ncsnpp network "
            f"with {halvings + 1} multipliers does; give it fewer, for instance multipliers=1,2"
        )
    if patch == 1:
        return NCSNpp(shape[0], **keywords)
    return PatchesInAndOut(NCSNpp(shape[0] * patch**2, **keywords), patch)


def ncsnpp_classifier(shape: Shape, patch: int, head: str, classes: int, **keywords: Any) -> nn.Module:
    levels = len(keywords["multipliers"])
    if min(shape[1:]) // patch < 2 ** (levels - 1):
        raise SelfcalError(
            f"images of {shape[2]}×{shape[1]} pixels are too small for a classifier with {levels} multipliers; "
            "give it fewer, for instance multipliers=1,2"
        )
    network = look_up("head", head, HEADS)(Encoder(shape[0] * patch**2, **keywords), classes)
    return network if patch == 1 else PatchesIn(network, patch)


# --- adopted --------------------------------------------------------------------------------------


NO_CLASSIFIER = "an adopted network is a score model that `selfcal adopt` took in; set network=mlp or network=ncsnpp"


def adopted_keywords(net: Net, shape: Shape, classes: int) -> Keywords:
    if not net.adopted:
        raise SelfcalError(NO_CLASSIFIER)
    if not classes:
        return network_keywords(net.adopted)
    if "sigma_data" not in net.adopted:
        raise SelfcalError(NO_CLASSIFIER)
    return {"adopted": dict(net.adopted), "shape": list(shape), "classes": classes, "head": net.head}


def adopted_denoiser(
    config: dict[str, Any] | None = None, unit_interval: bool = False, **conditional: Any
) -> nn.Module:
    if config is None:
        raise SelfcalError("an adopted network is not told the class; set conditional.network=mlp or ncsnpp")
    return UNet(config, unit_interval)


def adopted_classifier(adopted: Mapping[str, Any], shape: Shape, classes: int, head: str) -> nn.Module:
    """On the adopted network's own way down."""
    made = look_up("head", head, HEADS)(AdoptedEncoder(adopted), classes)
    return quietened(made, shape) if head == "energy" else made


def no_classifier(**keywords: Any) -> nn.Module:
    raise SelfcalError(NO_CLASSIFIER)


def own_keywords(net: Net, shape: Shape, classes: int) -> Keywords:
    if "form" not in net.adopted:
        raise SelfcalError(NO_CLASSIFIER)
    return {"adopted": dict(net.adopted)}


KINDS: dict[str, Kind] = {
    "mlp": Kind(mlp_keywords, mlp_denoiser, mlp_classifier),
    "ncsnpp": Kind(ncsnpp_keywords, ncsnpp_denoiser, ncsnpp_classifier),
    "adopted": Kind(adopted_keywords, adopted_denoiser, adopted_classifier),
    "adopted-module": Kind(own_keywords, Elsewhere, no_classifier),
}


@dataclass(frozen=True)
class FormKind:
    """A row of the table of forms: its keywords from settings and σ_d, and what makes it."""

    keywords: Callable[[Net, float], Keywords]
    make: Callable[..., Form]


FORMS: dict[str, FormKind] = {
    "edm": FormKind(lambda net, sigma_data: {"sigma_data": sigma_data}, EDM),
    "ve": FormKind(lambda net, sigma_data: {}, VE),
    "adopted": FormKind(lambda net, sigma_data: form_keywords(net.adopted), foreign_form),
    "adopted-module": FormKind(lambda net, sigma_data: {"adopted": dict(net.adopted)}, own_form),
}


def make_form(recipe: Recipe) -> Form:
    return look_up("form", recipe[0], FORMS).make(**recipe[1])


def make_score_model(network: Recipe, form: Recipe) -> ScoreModel:
    return ScoreModel(look_up("network", network[0], KINDS).denoiser(**network[1]), make_form(form))


def make_classifier(network: Recipe, sigma_data: float) -> Classifier:
    return Classifier(look_up("network", network[0], KINDS).classifier(**network[1]), sigma_data)
