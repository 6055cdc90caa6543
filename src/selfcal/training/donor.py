"""Another run's score model, taken over instead of being trained."""

from __future__ import annotations

from pathlib import Path

from selfcal import run as runs
from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced
from selfcal.core.settings import Settings
from selfcal.data import Dataset
from selfcal.methods import table as methods
from selfcal.training import checkpoint
from selfcal.training.lock import differences


def compatible_score(donor: runs.Run, row: methods.Method, settings: Settings, data: Dataset) -> runs.Run:
    """The donor's score model must be finished and fit this data and these settings."""
    if "score" not in {s.name for s in row.stages(settings)} & {s.name for s in donor.stages}:
        raise SelfcalError(f"--score {donor.path}: {donor.method.name} and {row.name} do not share a score model")
    if donor.config["data"]["sha256"] != data.sha256:
        raise SelfcalError(f"--score {donor.path} was trained on other data ({donor.config['data']['name']})")
    theirs = donor.settings
    unlike = differences(theirs.score.model_dump(), settings.score.model_dump(), "score")
    unlike += differences(theirs.noise.model_dump(), settings.noise.model_dump(), "noise")
    if unlike:
        raise SelfcalError(f"--score {donor.path} was trained with another {', '.join(unlike)}")
    score_sha256(donor)
    return donor


def score_sha256(donor: runs.Run) -> str:
    step, _, sha256 = checkpoint.load_average(donor.path / "checkpoints" / "score")
    if step < donor.settings.score.steps:
        raise SelfcalError(f"--score {donor.path}: its score model is at step {step} of {donor.settings.score.steps}")
    return sha256


def take_over(donor: runs.Run, out: Path) -> None:
    """Copy the donor's newest score checkpoint, so that the new run stands on its own."""
    theirs, ours = donor.path / "checkpoints" / "score", out / "checkpoints" / "score"
    step = checkpoint.steps_saved(theirs)[-1]
    if not checkpoint.path_of(ours, step).exists():
        with surfaced(f"cannot copy the score model to {ours}"):
            checkpoint.copy(checkpoint.path_of(theirs, step), ours, step)
