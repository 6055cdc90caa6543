"""`selfcal adopt`: a pretrained unconditional model becomes class-conditional; only the guide is trained.

The model is written down as the score network of a run of its own, in a temporary folder, which
`selfcal.train` then takes over as it does any other run's: nothing else knows where it came from.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfcal import run as runs
from selfcal.core.errors import SelfcalError
from selfcal.core.progress import say
from selfcal.core.settings import Settings, pairs, resolve
from selfcal.data import Dataset, load_data, reveal
from selfcal.interop import diffusers, score_sde
from selfcal.methods import table as methods
from selfcal.nets import ScoreModel
from selfcal.training import checkpoint, processes
from selfcal.training.fit import default_preset, describe, train


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
    show_progress: bool = False,
) -> runs.Run:
    """Train a guide for the model in `source`: a diffusers pipeline's folder, or a checkpoint of score_sde_pytorch.

    The same call resumes. Noise is drawn from the σ that both the preset and the model know.
    """
    row = methods.find(method)
    pile, seen = reveal(load_data(data), labels, seed)
    adopted = open_source(Path(source), pile)
    asked = dict(pairs(settings))
    fixed = [key for key in asked if key.startswith("score.")]
    if fixed:
        raise SelfcalError(f"{fixed[0]} cannot be set: the score model is adopted from {source} as it is")
    changes = asked | adopted.settings
    chosen = resolve(preset or default_preset(pile), changes, steps)
    check_method(row, chosen)
    changes |= common_noise(chosen, adopted, source)
    chosen = resolve(preset or default_preset(pile), changes, steps)
    if show_progress and processes.accelerator().is_main_process:
        noise = chosen.noise
        say(f"adopted {source}: {adopted.words}; σ from {noise.sigma_min:.3g} to {noise.sigma_max:.3g}")
    with tempfile.TemporaryDirectory(prefix="selfcal-") as folder:
        donor = Path(folder)
        checkpoint.write_json(donor / "config.json", describe(data, pile, seen, method, labels, seed, chosen, None))
        weights = adopted.model.state_dict()
        state: dict[str, Any] = {"weights": weights, "ema": weights, "optimizer": {}}
        checkpoint.save(donor / "checkpoints" / "score", 1, state, {"network": "score"})
        return train(
            data,
            method,
            labels,
            out,
            seed=seed,
            steps=steps,
            score=donor,
            preset=preset,
            settings=changes,
            show_progress=show_progress,
        )


def open_source(source: Path, data: Dataset) -> Adopted:
    """A folder is a pipeline, a file a checkpoint; either must fit the data."""
    if not data.is_image:
        raise SelfcalError(f"{data.name} holds points; models of images are adopted")
    if source.is_dir():
        pipeline = diffusers.load(source)
        if pipeline.shape != data.shape:
            raise SelfcalError(f"{source} makes images shaped {pipeline.shape}, {data.name} has {data.shape}")
        found: dict[str, Any] = {"network": "adopted", "form": "adopted", "adopted": pipeline.adopted}
        return Adopted(pipeline.model, _of_score(found), pipeline.sigma_min, pipeline.sigma_max, pipeline.words)
    saved = score_sde.read(source)
    if saved.channels != data.shape[0]:
        raise SelfcalError(f"{source} makes images of {saved.channels} channels, {data.name} has {data.shape[0]}")
    halvings = len(saved.architecture["multipliers"]) - 1
    if any(side % 2**halvings for side in data.shape[1:]):
        raise SelfcalError(
            f"{source} halves images {halvings} times, which those of {data.name} {data.shape} do not bear"
        )
    levels = saved.architecture.pop("attention")
    resolutions = [data.shape[1] // 2**level for level in levels]
    found = {"network": "ncsnpp", "form": "ve", "attention": resolutions, "dropout": 0.0} | saved.architecture
    words = f"NCSN++ of score_sde, {sum(p.numel() for p in saved.model.parameters()):,} parameters"
    return Adopted(saved.model, _of_score(found), saved.sigma_min, saved.sigma_max, words)


def _of_score(found: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the score network, which counts as trained: by one step."""
    return {f"score.{key}": value for key, value in found.items()} | {"score.steps": 1}


def check_method(row: methods.Method, settings: Settings) -> None:
    if "score" not in {stage.name for stage in row.stages(settings)}:
        raise SelfcalError(
            f"{row.name} has no unconditional score model that could be adopted; take a method of classifier guidance"
        )


def common_noise(settings: Settings, adopted: Adopted, source: str | Path) -> dict[str, float]:
    low = max(settings.noise.sigma_min, adopted.sigma_min)
    high = min(settings.noise.sigma_max, adopted.sigma_max)
    if low >= high:
        raise SelfcalError(
            f"{source} knows σ from {adopted.sigma_min:.3g} to {adopted.sigma_max:.3g}, the settings ask for "
            f"{settings.noise.sigma_min:.3g} to {settings.noise.sigma_max:.3g}"
        )
    return {"noise.sigma_min": low, "noise.sigma_max": high}
