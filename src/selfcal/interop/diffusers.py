"""Unconditional models trained with diffusers: a `UNet2DModel` and a scheduler, in a folder or in memory.

What is kept of one are two plain dictionaries, {"unet": …, "scheduler": …}, and its weights; network
and form (nets/foreign.py) are made from them (nets/foreign_schedules.py). Before a model is believed,
its wrapped score is compared with diffusers' own denoising at several noise levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.interop.conventions import Conventions
from selfcal.interop.layouts import Layout, find, read_part
from selfcal.interop.schedulers import own_denoising
from selfcal.interop.tensors import held, read_pickled
from selfcal.nets.builders import without_memory
from selfcal.nets.foreign_schedules import (
    DDPM,
    family_of,
    form_keywords,
    in_words,
    installed,
    known_keywords,
    ladder,
    network_keywords,
)
from selfcal.nets.forms import ScoreModel
from selfcal.nets.recipes import Recipe, make_score_model
from selfcal.training.records import LARGEST_EXAMPLE

MOST_LEVELS = 100_000  # of a ladder of noise levels; a thousand are usual
ASSUMED = {"_class_name": "DDPMScheduler", "num_train_timesteps": 1000, "prediction_type": "epsilon"}
ASSUMED_IN_WORDS = "no scheduler beside it: taken as DDPM that predicts the noise, with linear β to 0.02"
PREDICTIONS = {"epsilon": "epsilon", "v_prediction": "v", "sample": "x0"}  # their words, and those for modules
TOLERANCE = 1e-3  # of the denoised image; float32 leaves about 1e-5


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's model as a score in our units, what describes it, and the range of σ it knows."""

    model: ScoreModel
    adopted: dict[str, Any]
    shape: tuple[int, int, int]
    sigma_min: float
    sigma_max: float
    apart: float  # its denoising and diffusers' own, at most
    notes: tuple[str, ...] = ()  # what was chosen or assumed

    @property
    def known(self) -> bool:
        """Whether something says how it was trained."""
        return ASSUMED_IN_WORDS not in self.notes

    @property
    def conventions(self) -> Conventions | None:
        """In the words that modules are described with, where it is of the DDPM family."""
        scheduler = self.adopted["scheduler"]
        predicts = PREDICTIONS.get(scheduler.get("prediction_type", "epsilon"))
        if predicts is None or family_of(scheduler) is not DDPM:
            return None
        sigma = torch.tensor(ladder(scheduler), dtype=torch.float64)
        return Conventions(predicts, alphas_cumprod=1 / (1 + sigma**2))

    @property
    def words(self) -> str:
        said = f"{in_words(self.adopted)}, agrees with diffusers' own denoising to {self.apart:.0e}"
        return "; ".join([said, *self.notes])


def load(path: str | Path, subfolder: str | None = None) -> Pipeline:
    """Open a folder that diffusers wrote, or refuse in words what cannot be represented."""
    layout = find(Path(path), subfolder)
    unet, where = read_part(layout.network / "config.json"), str(path)
    adopted = {"unet": unconditional(unet, where), "scheduler": layout.scheduler or ASSUMED}

    notes = [layout.note] * bool(layout.note) + [ASSUMED_IN_WORDS] * (layout.scheduler is None)
    return represented(adopted, where, lambda asked: _read_weights(asked, layout), tuple(notes))


def from_live(unet: Any, scheduler: Mapping[str, Any] | None, name: str) -> Pipeline:
    """A UNet2DModel in memory, with the configuration of its scheduler."""
    config = dict(unet.config) | {"_class_name": type(unet).__name__}
    adopted = {"unet": unconditional(config, name), "scheduler": plain(scheduler or ASSUMED)}
    notes = () if scheduler else (ASSUMED_IN_WORDS,)
    return represented(adopted, name, lambda asked: unet.state_dict(), notes)


def represented(
    adopted: dict[str, Any], name: str, read: Callable[[nn.Module], Mapping[str, Tensor]], notes: tuple[str, ...]
) -> Pipeline:
    """The model that these two configurations describe, compared with diffusers' own denoising.

    read: the weights of the network that is asked for, which has no memory yet.
    """
    scheduler = adopted["scheduler"]
    family = family_of(scheduler)
    with _in_one_sentence(f"{name} does not describe a model that diffusers could make"):
        shape = _image_shape(adopted["unet"])
        _check_schedule(scheduler)
        low, high = family.sigmas(scheduler)
        asked = without_memory(make_score_model, *recipes(adopted))
    weights = read(asked)
    model: Any = make_score_model(*recipes(adopted)).eval().requires_grad_(False)
    with _in_one_sentence(f"the weights of {name} cannot be loaded"):
        model.network.unet.load_state_dict({key: value.float().cpu() for key, value in weights.items()})
    for key, tensor in model.network.unet.state_dict().items():
        if not tensor.isfinite().all():
            raise SelfcalError(f"{name} holds NaN or infinite weights, for instance in {key}")
    with _in_one_sentence(f"diffusers cannot denoise with {name}"), torch.random.fork_rng(devices=[]):
        apart = check(model, own_denoising(scheduler, model.network), adopted, name)
    return Pipeline(model, adopted, shape, low, high, apart, notes)


def advice(predicts: str) -> str:
    """Where a pipeline's folder says what its network predicts."""
    known = {ours: theirs for theirs, ours in PREDICTIONS.items()}
    right = f'"{known[predicts]}"' if predicts in known else "what it was trained with"
    return f"the prediction_type of its scheduler should be {right}"


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A scheduler's configuration as its JSON file has it."""
    return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in dict(config).items()}


def recipes(adopted: Mapping[str, Any]) -> tuple[Recipe, Recipe]:
    """Of the network and of the form."""
    return ("adopted", network_keywords(adopted)), ("adopted", form_keywords(adopted))


def check(model: ScoreModel, own: Iterator[tuple[Tensor, float, Tensor]], adopted: Mapping, name: str) -> float:
    """Our denoised image against theirs at every noise level they offer; returns how far they are apart at most."""
    worst = 0.0
    for x, sigma, expected in own:
        ours = model.denoise(x, torch.full((len(x),), sigma))
        apart = float((ours - expected).abs().max() / expected.abs().max().clamp(min=1))
        if not apart < TOLERANCE:
            raise SelfcalError(
                f"{name}: at σ = {sigma:.3g} its own denoising and selfcal's differ by {apart:.1%}; "
                f"its {adopted['scheduler'].get('_class_name')} is not understood"
            )
        worst = max(worst, apart)
    return worst


@contextmanager
def _in_one_sentence(what: str) -> Iterator[None]:
    """diffusers raises whatever its parts raise; the first line of it is for people."""
    try:
        yield
    except SelfcalError:
        raise
    except Exception as error:
        lacks = f"{error} is missing" if isinstance(error, KeyError) else ""
        said = (lacks or str(error).strip() or type(error).__name__).splitlines()[0]
        raise SelfcalError(f"{what}: {shorten(said, 160, placeholder=' …')}") from None


def unconditional(config: dict[str, Any], path: str) -> dict[str, Any]:
    """The U-Net's keywords, without diffusers' own notes."""
    if config.get("_class_name") != "UNet2DModel":
        raise SelfcalError(f"the network of {path} is a {config.get('_class_name')}; only a UNet2DModel can be adopted")
    if config.get("class_embed_type") or config.get("num_class_embeds"):
        raise SelfcalError(f"the network of {path} is class-conditional already; there is nothing to adopt")
    if config.get("in_channels") != config.get("out_channels"):
        raise SelfcalError(f"the network of {path} has other outputs than inputs (a learned variance?)")
    if not config.get("sample_size"):
        raise SelfcalError(f"the network of {path} does not say its sample_size")
    return known_keywords(installed().UNet2DModel, config)


def _image_shape(unet: Mapping[str, Any]) -> tuple[int, int, int]:
    size = unet["sample_size"]
    height, width = (size, size) if isinstance(size, int) else size
    shape = (unet["in_channels"], height, width)
    if not all(isinstance(n, int) and n > 0 for n in shape) or math.prod(shape) > LARGEST_EXAMPLE:
        raise ValueError(f"images shaped {shape} are none")
    return shape


def _check_schedule(config: Mapping[str, Any]) -> None:
    levels = config.get("num_train_timesteps", 1000)
    if not isinstance(levels, int) or not 2 <= levels <= MOST_LEVELS:
        raise ValueError(f"num_train_timesteps = {levels!r}, where 2 to {MOST_LEVELS} are expected")


def _read_weights(asked: nn.Module, layout: Layout) -> Mapping[str, Tensor]:
    """Of the network that is asked for, read by diffusers, which knows its older names of weights.

    A .bin is a pickle: it is first read by a reader that makes nothing but tensors, and so does diffusers.
    """
    folder, file = layout.network, layout.weights
    pickled = ".bin" in file.name
    _check_bytes(asked, folder, "*.bin" if pickled else "*.safetensors")
    for part in sorted(folder.glob("*.bin")) if pickled else ():
        content = read_pickled(part)
        if not isinstance(content, dict):
            raise SelfcalError(f"{part} holds no weights by name")
        for name, tensor in content.items():
            held(tensor, str(name), part)
    with _quiet(), _in_one_sentence(f"the weights in {folder} cannot be loaded"):
        theirs, found = installed().UNet2DModel.from_pretrained(
            str(folder),
            use_safetensors=not pickled,
            variant=layout.variant,
            local_files_only=True,
            output_loading_info=True,
        )
    if found["missing_keys"]:
        raise SelfcalError(f"the weights in {folder} are incomplete: {min(found['missing_keys'])} is missing")
    weights: Mapping[str, Tensor] = theirs.state_dict()
    return weights


def _check_bytes(asked: nn.Module, folder: Path, files: str) -> None:
    """A few words in a configuration can ask for any memory; weights of that size must be there first."""
    numbers = sum(p.numel() for p in asked.parameters())
    size = sum(file.stat().st_size for file in folder.glob(files))
    if numbers > size:  # even half precision takes two bytes each
        kind = files.removeprefix("*.")
        raise SelfcalError(f"{folder} asks for {numbers:,} weights, but its {kind} files hold {size:,} bytes")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without diffusers' advice about weights, which is for those who train."""
    talk = installed().utils.logging
    before = talk.get_verbosity()
    talk.set_verbosity(talk.CRITICAL)
    try:
        yield
    finally:
        talk.set_verbosity(before)
