"""Where a classifier's weights begin, if not at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from selfcal.core.errors import SelfcalError
from selfcal.nets.foreign_encoder import PARTS

ENCODER, ADOPTED = "encoder.", "unet."


def start_from_score(classifier: nn.Module, networks: Mapping[str, Any]) -> None:
    """The classifier's encoder becomes a copy of the score model's; both must be made alike."""
    if "score" not in networks:
        raise SelfcalError("classifier.start = score: this method trains no score model; set classifier.start=scratch")
    theirs, ours = encoder_of(networks["score"]), encoder_of(classifier)
    shapes = [{name: value.shape for name, value in state.items()} for state in (theirs, ours)]
    if not ours or shapes[0] != shapes[1]:
        raise SelfcalError(
            "classifier.start = score: the two encoders differ; give score and classifier the same network, width, "
            "multipliers, blocks, attention and patch, or set classifier.start=scratch"
        )
    for name, value in ours.items():
        value.copy_(theirs[name])


def freeze_encoder(classifier: nn.Module) -> None:
    """Only what stands on it learns."""
    for name, parameter in classifier.named_parameters():
        parameter.requires_grad_(ENCODER not in name)


def encoder_of(network: nn.Module) -> dict[str, Any]:
    """The tensors of a network's encoder, by their names within it; of an adopted U-Net, those of its way down."""
    state = network.state_dict()
    own = {name.split(ENCODER, 1)[1]: value for name, value in state.items() if ENCODER in name}
    if own:
        return {name.removeprefix(ADOPTED): value for name, value in own.items()}
    adopted = {name.split(ADOPTED, 1)[1]: value for name, value in state.items() if ADOPTED in name}
    return {name: value for name, value in adopted.items() if name.split(".")[0] in PARTS}
