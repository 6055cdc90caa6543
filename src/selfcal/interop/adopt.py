"""`selfcal adopt`: a pretrained unconditional model becomes class-conditional; only the guide is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.core.progress import say
from selfcal.core.settings import pairs
from selfcal.data.dataset import Dataset
from selfcal.data.sources import load_data
from selfcal.interop import diffusers, score_sde
from selfcal.nets.forms import ScoreModel
from selfcal.run import Run
from selfcal.training import processes
from selfcal.training.directory import recorded
from selfcal.training.donor import from_weights
from selfcal.training.fit import Watching, fit
from selfcal.training.request import Prepared, Request
from selfcal.training.stage import OnStep


@dataclass(frozen=True)
class Adopted:
    """A score model in our units, the settings that make its network again, the σ it knows, and what it is."""

    model: ScoreModel
    settings: dict[str, Any]
    sigma_min: float
    sigma_max: float
    words: str


def adopt(
    source: str | Path,
    data: str | Path,
    labels: str | float = 0.02,
    method: str = "cg-sc-all",
    out: str | Path = "runs/adopted",
    *,
    seed: int = 0,
    steps: int | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    on_step: OnStep | None = None,
    show_progress: bool = False,
) -> Run:
    """Train a guide for the model in `source`: a diffusers pipeline's folder, or a checkpoint of score_sde_pytorch.

    The same call resumes. Noise is drawn from the σ that both the preset and the model know.
    """
    changes = dict(pairs(settings))
    if fixed := [key for key in changes if key.startswith("score.")]:
        raise SelfcalError(f"{fixed[0]} cannot be set: the score model is adopted from {source} as it is")
    pile = load_data(data)
    adopted = open_source(Path(source), pile)
    request = Request(data, method, labels, seed, steps, preset, changes | adopted.settings)
    wanted, before = request.prepared(pile), recorded(Path(out))
    check_method(wanted)
    noise = common_noise(wanted, adopted, source)
    if before is not None:  # what both knew when the run began, whatever the preset is by now
        noise = {key: before["settings"]["noise"][key.removeprefix("noise.")] for key in noise}
    wanted = replace(request, settings=changes | adopted.settings | noise).prepared(pile, before)
    if show_progress and processes.accelerator().is_main_process:
        low, high = noise["noise.sigma_min"], noise["noise.sigma_max"]
        say(f"adopted {source}: {adopted.words}; σ from {low:.3g} to {high:.3g}")
    donor = from_weights(adopted.model.state_dict())
    return Run(fit(wanted, Path(out), donor, Watching(on_step=on_step, show_progress=show_progress)))


def open_source(source: Path, data: Dataset) -> Adopted:
    """A folder is a pipeline, a file a checkpoint; either must fit the data."""
    if not data.is_image:
        raise SelfcalError(f"{data.name} holds points; models of images are adopted")
    return from_pipeline(source, data) if source.is_dir() else from_checkpoint(source, data)


def from_pipeline(source: Path, data: Dataset) -> Adopted:
    pipeline = diffusers.load(source)
    if pipeline.shape != data.shape:
        raise SelfcalError(f"{source} makes images shaped {pipeline.shape}, {data.name} has {data.shape}")
    settings = {"network": "adopted", "form": "adopted", "adopted": pipeline.adopted}
    return Adopted(pipeline.model, of_score(settings), pipeline.sigma_min, pipeline.sigma_max, pipeline.words)


def from_checkpoint(source: Path, data: Dataset) -> Adopted:
    saved = score_sde.read(source)
    if saved.channels != data.shape[0]:
        raise SelfcalError(f"{source} makes images of {saved.channels} channels, {data.name} has {data.shape[0]}")
    architecture = dict(saved.architecture)
    halvings = len(architecture["multipliers"]) - 1
    if any(side % 2**halvings for side in data.shape[1:]):
        raise SelfcalError(
            f"{source} halves images {halvings} times, which those of {data.name} {data.shape} do not bear"
        )
    resolutions = [data.shape[1] // 2**level for level in architecture.pop("attention")]
    settings = {"network": "ncsnpp", "form": "ve", "attention": resolutions, "dropout": 0.0} | architecture
    words = f"NCSN++ of score_sde, {sum(p.numel() for p in saved.model.parameters()):,} parameters"
    return Adopted(saved.model, of_score(settings), saved.sigma_min, saved.sigma_max, words)


def of_score(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the score network, which counts as trained: by one step."""
    return {f"score.{key}": value for key, value in settings.items()} | {"score.steps": 1}


def check_method(wanted: Prepared) -> None:
    if "score" not in {stage.name for stage in wanted.method.stages(wanted.settings)}:
        raise SelfcalError(
            f"{wanted.method.name} has no unconditional score model that could be adopted; "
            "take a method of classifier guidance"
        )


def common_noise(wanted: Prepared, adopted: Adopted, source: str | Path) -> dict[str, float]:
    noise = wanted.settings.noise
    low, high = max(noise.sigma_min, adopted.sigma_min), min(noise.sigma_max, adopted.sigma_max)
    if low >= high:
        raise SelfcalError(
            f"{source} knows σ from {adopted.sigma_min:.3g} to {adopted.sigma_max:.3g}, the settings ask for "
            f"{noise.sigma_min:.3g} to {noise.sigma_max:.3g}"
        )
    return {"noise.sigma_min": low, "noise.sigma_max": high}
