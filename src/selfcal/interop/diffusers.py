"""Unconditional models trained with diffusers: a `UNet2DModel` and a scheduler, in a pipeline's folder.

What is kept of one are two plain dictionaries, {"unet": …, "scheduler": …}, and its weights; network
and form (nets/foreign.py) are made from them (nets/foreign_schedules.py). Before a model is believed,
its wrapped score is compared with diffusers' own denoising at several noise levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.core.files import read_json
from selfcal.interop.schedulers import own_denoising
from selfcal.nets.builders import without_memory
from selfcal.nets.foreign_schedules import (
    family_of,
    form_keywords,
    in_words,
    installed,
    known_keywords,
    network_keywords,
)
from selfcal.nets.forms import ScoreModel
from selfcal.nets.recipes import Recipe, make_score_model
from selfcal.training.records import LARGEST_EXAMPLE

LATENT = ("vae", "vqvae", "movq", "image_encoder")
TEXT = ("text_encoder", "tokenizer", "prior")
OWN = ("unet", "scheduler")
MOST_LEVELS = 100_000  # of a ladder of noise levels; a thousand are usual
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

    @property
    def words(self) -> str:
        return f"{in_words(self.adopted)}, agrees with diffusers' own denoising to {self.apart:.0e}"


def load(path: str | Path) -> Pipeline:
    """Open a pipeline's folder, or refuse in words what cannot be represented."""
    path = Path(path)
    index = _json(path / "model_index.json")
    _check_parts({name for name, part in index.items() if name[:1] != "_" and part != [None, None]}, path)
    unet = _json(path / "unet" / "config.json")
    scheduler = _json(path / "scheduler" / "scheduler_config.json")
    family = family_of(scheduler)
    adopted = {"unet": _unconditional(unet, path), "scheduler": scheduler}
    with _in_one_sentence(f"{path} does not describe a model that diffusers could make"):
        shape = _image_shape(unet)
        _check_schedule(scheduler)
        low, high = family.sigmas(scheduler)
        asked = without_memory(make_score_model, *recipes(adopted))
    _check_bytes(asked, path / "unet")
    model = make_score_model(*recipes(adopted)).eval().requires_grad_(False)
    _load_weights(model, path / "unet")
    with _in_one_sentence(f"diffusers cannot denoise with {path}"), torch.random.fork_rng(devices=[]):
        apart = check(model, own_denoising(scheduler, model.network), adopted, str(path))
    return Pipeline(model, adopted, shape, low, high, apart)


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


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise SelfcalError(f"{file.parent} is not a diffusers pipeline: it has no {file.name}")
    found = read_json(file)
    if not isinstance(found, dict):
        raise SelfcalError(f"{file} is not a configuration of diffusers")
    return found


def _check_parts(parts: set[str], path: Path) -> None:
    for part in LATENT:
        if part in parts:
            raise SelfcalError(f"{path} generates in the latent space of its {part}; only pixel models can be adopted")
    for part in TEXT:
        if part in parts:
            raise SelfcalError(f"{path} is guided by text (it has a {part}); only unconditional models can be adopted")
    if not parts.issuperset(OWN):
        raise SelfcalError(f"{path} has no unet and scheduler; it holds {', '.join(sorted(parts))}")
    if not parts.issubset(OWN):
        strange = ", ".join(sorted(parts.difference(OWN)))
        raise SelfcalError(f"{path} has parts whose meaning selfcal does not know ({strange}); it cannot be adopted")


def _unconditional(config: dict[str, Any], path: Path) -> dict[str, Any]:
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


def _check_bytes(asked: nn.Module, folder: Path) -> None:
    """A few words in a configuration can ask for any memory; weights of that size must be there first."""
    numbers = sum(p.numel() for p in asked.parameters())
    held = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if numbers > held:  # even half precision takes two bytes each
        raise SelfcalError(
            f"{folder} asks for {numbers:,} weights, but its safetensors files hold {held:,} bytes"
            if held
            else f"{folder} has no safetensors file; diffusers' other formats are pickles, which are never loaded"
        )


def _load_weights(model: ScoreModel, folder: Path) -> None:
    """From safetensors only: diffusers' other formats are pickles."""
    with _quiet(), _in_one_sentence(f"the weights in {folder} cannot be loaded"):
        theirs, found = installed().UNet2DModel.from_pretrained(
            str(folder), use_safetensors=True, local_files_only=True, output_loading_info=True
        )
    if found["missing_keys"]:
        raise SelfcalError(f"the weights in {folder} are incomplete: {min(found['missing_keys'])} is missing")
    network: Any = model.network
    network.unet.load_state_dict(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        if not tensor.isfinite().all():
            raise SelfcalError(f"{folder} holds NaN or infinite weights, for instance in {name}")


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
