"""A finished score model from elsewhere, taken over instead of being trained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced
from selfcal.data.pixels import same_images
from selfcal.training import checkpoints
from selfcal.training.directory import RunDirectory
from selfcal.training.lock import differences
from selfcal.training.request import Prepared


@dataclass(frozen=True)
class Donor:
    """A score model: the SHA-256 of its averaged weights, and how it becomes a checkpoint in a folder."""

    sha256: str
    write: Callable[[Path], object]
    network: Callable[..., object] | None = None  # a module of the user's own, which no settings could make

    def take_over(self, folder: Path) -> None:
        """As the score network of a new run, which then stands on its own."""
        if not checkpoints.steps_saved(folder):
            with surfaced(f"cannot put the score model into {folder}"):
                self.write(folder)


def taking_over(donor: RunDirectory, wanted: Prepared) -> Prepared:
    """Its score model is as long as it is, where nobody asked for a length."""
    said = wanted.asked
    if said["steps"] is not None or "score.steps" in said["settings"]:
        return wanted
    return wanted.with_steps({"score": donor.settings.score.steps})


def from_run(donor: RunDirectory, wanted: Prepared) -> Donor:
    """Another run's score model, which must be finished and fit this data and these settings."""
    where, folder = f"--score {donor.path}", donor.checkpoints("score")
    stages = {stage.name for stage in wanted.method.stages(wanted.settings)}
    if "score" not in stages & {stage.name for stage in donor.stages}:
        raise SelfcalError(f"{where}: {donor.method.name} and {wanted.method.name} do not share a score model")
    if donor.config["data"]["sha256"] != wanted.data.sha256 and not same_images(donor.data.x, wanted.data.x):
        raise SelfcalError(f"{where} was trained on other data ({donor.config['data']['name']})")
    theirs, ours = donor.settings, wanted.settings
    unlike = differences(theirs.score.model_dump(), ours.score.model_dump(), "score")
    unlike += differences(theirs.noise.model_dump(), ours.noise.model_dump(), "noise")
    if unlike:
        raise SelfcalError(f"{where} was trained with another {', '.join(unlike)}")
    step, _, sha256 = checkpoints.load_average(folder)
    if step < theirs.score.steps:
        raise SelfcalError(f"{where}: its score model is at step {step} of {theirs.score.steps}")
    return Donor(sha256, lambda to: checkpoints.share(checkpoints.path_of(folder, step), to, step))


def from_weights(weights: Mapping[str, Tensor], network: Callable[..., object] | None = None) -> Donor:
    """A model that was trained elsewhere; here it counts as trained, by one step. network: see `Donor`."""
    state: dict[str, Mapping[str, Tensor]] = {"weights": weights, "ema": weights, "optimizer": {}}
    sha256 = hashlib.sha256(checkpoints.packed(weights)).hexdigest()
    return Donor(sha256, lambda to: checkpoints.save(to, 1, state, {"network": "score"}), network)
