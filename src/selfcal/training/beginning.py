"""Where a classifier's weights begin, if not at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from selfcal.core.errors import SelfcalError

ENCODER = "encoder."


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


def encoder_of(network: nn.Module) -> dict[str, Any]:
    """The tensors of a network's encoder, by their names within it."""
    state = network.state_dict()
    return {name.split(ENCODER, 1)[1]: value for name, value in state.items() if ENCODER in name}
