"""Unconditional models trained with diffusers: a `UNet2DModel` and a scheduler, in a pipeline's folder.

What is kept of one are two plain dictionaries, {"unet": …, "scheduler": …}, and its weights; network
and form (nets/foreign.py) are made from them. Before a model is believed, its wrapped score is
compared with diffusers' own denoising at several noise levels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfcal.errors import SelfcalError
from selfcal.nets.forms import ScoreModel
from selfcal.nets.recipes import Recipe, make_score_model

LATENT = ("vae", "vqvae", "movq", "image_encoder")
TEXT = ("text_encoder", "tokenizer", "prior")
TOLERANCE = 1e-3  # of the denoised image; float32 leaves about 1e-5
LEVELS = (0.02, 0.3, 0.6, 0.9)  # where in the ladder of noise levels both are compared


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's model as a score in our units, what describes it, and the range of σ it knows."""

    model: ScoreModel
    adopted: dict[str, Any]
    shape: tuple[int, int, int]
    sigma_min: float
    sigma_max: float


def load(path: str | Path) -> Pipeline:
    """Open a pipeline's folder, or refuse in words what cannot be represented."""
    path = Path(path)
    index = _json(path / "model_index.json")
    for part in LATENT:
        if part in index:
            raise SelfcalError(f"{path} generates in the latent space of its {part}; only pixel models can be adopted")
    for part in TEXT:
        if part in index:
            raise SelfcalError(f"{path} is guided by text (it has a {part}); only unconditional models can be adopted")
    if "unet" not in index or "scheduler" not in index:
        raise SelfcalError(f"{path} has no unet and scheduler; it holds {', '.join(k for k in index if k[0] != '_')}")
    unet = _json(path / "unet" / "config.json")
    scheduler = _json(path / "scheduler" / "scheduler_config.json")
    adopted = {"unet": _unconditional(unet, path), "scheduler": scheduler}
    model = make_score_model(unet_recipe(adopted), form_recipe(adopted)).eval().requires_grad_(False)
    _load_weights(model, path / "unet")
    family = _family(scheduler)
    check(model, family.own_denoising(scheduler, model.network), adopted, str(path))
    low, high = family.sigmas(scheduler)
    channels, size = unet["in_channels"], unet["sample_size"]
    height, width = (size, size) if isinstance(size, int) else size
    return Pipeline(model, adopted, (channels, height, width), low, high)


def unet_recipe(adopted: Mapping[str, Any]) -> Recipe:
    family = _family(adopted["scheduler"])
    return "unet2d", {"config": dict(adopted["unet"]), "unit_interval": family.unit_interval}


def form_recipe(adopted: Mapping[str, Any]) -> Recipe:
    return _family(adopted["scheduler"]).form(adopted["scheduler"])


def check(model: ScoreModel, own: Iterator[tuple[Tensor, float, Tensor]], adopted: Mapping, name: str) -> None:
    """Our denoised image against theirs at every noise level they offer."""
    for x, sigma, expected in own:
        ours = model.denoise(x, torch.full((len(x),), sigma))
        apart = float((ours - expected).abs().max() / expected.abs().max().clamp(min=1))
        if not apart < TOLERANCE:
            raise SelfcalError(
                f"{name}: at σ = {sigma:.3g} its own denoising and selfcal's differ by {apart:.1%}; "
                f"its {adopted['scheduler'].get('_class_name')} is not understood"
            )


# --- families of schedulers -------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """How a kind of scheduler is read: its form, its range of σ in our units, and its own denoising."""

    form: Callable[[Mapping[str, Any]], Recipe]
    sigmas: Callable[[Mapping[str, Any]], tuple[float, float]]
    own_denoising: Callable[[Mapping[str, Any], Any], Iterator[tuple[Tensor, float, Tensor]]]
    unit_interval: bool = False


def ladder(config: Mapping[str, Any]) -> list[float]:
    """σ of every numbered level that is still finite (a schedule may end in pure noise)."""
    with torch.device("cpu"):  # numbers are needed even where networks are made without memory
        alphas = _diffusers().DDPMScheduler.from_config(dict(config)).alphas_cumprod.double()
    return [s for s in ((1 - alphas) / alphas).sqrt().tolist() if 0 < s < 1e5]


def ddpm_form(config: Mapping[str, Any]) -> Recipe:
    prediction = config.get("prediction_type", "epsilon")
    if prediction not in ("epsilon", "v_prediction", "sample"):
        raise SelfcalError(f"a model that predicts {prediction!r} cannot be adopted; epsilon, v_prediction, sample can")
    return prediction, {"sigmas": tuple(ladder(config))}


def ddpm_sigmas(config: Mapping[str, Any]) -> tuple[float, float]:
    known = ladder(config)
    return known[0], known[-1]


def ddim_denoising(config: Mapping[str, Any], network: Any) -> Iterator[tuple[Tensor, float, Tensor]]:
    """The x₀ that diffusers predicts at some levels."""
    plain = {"clip_sample": False, "thresholding": False}
    theirs = _diffusers().DDIMScheduler.from_config(dict(config) | plain)
    known = ladder(config)
    theirs.set_timesteps(theirs.config.num_train_timesteps)
    for part in LEVELS:
        number = int(part * (len(known) - 1))
        sigma = known[number]
        x = _noise(network)
        with torch.no_grad():
            out = network.unet(x, torch.full((len(x),), number)).sample
        yield x * (1 + sigma**2) ** 0.5, sigma, theirs.step(out, number, x).pred_original_sample


def edm_form(config: Mapping[str, Any]) -> Recipe:
    prediction = config.get("prediction_type", "epsilon")
    if prediction not in ("epsilon", "v_prediction"):
        raise SelfcalError(f"an EDM model that predicts {prediction!r} cannot be adopted; epsilon and v_prediction can")
    return f"edm-{prediction}", {"sigma_data": config["sigma_data"]}


def edm_denoising(config: Mapping[str, Any], network: Any) -> Iterator[tuple[Tensor, float, Tensor]]:
    theirs = _diffusers().EDMEulerScheduler.from_config(dict(config))
    low, high = config["sigma_min"], config["sigma_max"]
    for part in LEVELS:
        sigma = low * (high / low) ** part
        x = _noise(network) * (sigma**2 + config["sigma_data"] ** 2) ** 0.5
        level = theirs.precondition_noise(torch.tensor(sigma)).expand(len(x))
        with torch.no_grad():
            out = network.unet(theirs.precondition_inputs(x, sigma), level).sample
        yield x, sigma, theirs.precondition_outputs(x, out, sigma)


def ve_denoising(config: Mapping[str, Any], network: Any) -> Iterator[tuple[Tensor, float, Tensor]]:
    """From the step it takes down one level: mean = x + (σ² − σ₋²) s, on data in [0, 1]."""
    theirs = _diffusers().ScoreSdeVeScheduler.from_config(dict(config))
    levels = len(theirs.discrete_sigmas)
    for part in LEVELS:
        number = max(1, int(part * (levels - 1)))
        sigma, below = float(theirs.discrete_sigmas[number]), float(theirs.discrete_sigmas[number - 1])
        x = sigma * _noise(network)
        with torch.no_grad():
            out = network.unet(x, torch.full((len(x),), sigma)).sample
        mean = theirs.step_pred(out, (number + 0.5) / (levels - 1), x).prev_sample_mean
        score = (mean - x).double() / (sigma**2 - below**2)
        yield 2 * x - 1, 2 * sigma, (2 * (x + sigma**2 * score) - 1).float()


def stated(config: Mapping[str, Any], scale: float = 1.0) -> tuple[float, float]:
    return scale * config["sigma_min"], scale * config["sigma_max"]


DDPM = Family(ddpm_form, ddpm_sigmas, ddim_denoising)
KARRAS = Family(edm_form, stated, edm_denoising)
FAMILIES: dict[str, Family] = {
    "DDPMScheduler": DDPM,
    "DDIMScheduler": DDPM,
    "PNDMScheduler": DDPM,
    "DEISMultistepScheduler": DDPM,
    "DPMSolverMultistepScheduler": DDPM,
    "DPMSolverSinglestepScheduler": DDPM,
    "UniPCMultistepScheduler": DDPM,
    "EulerDiscreteScheduler": DDPM,
    "EulerAncestralDiscreteScheduler": DDPM,
    "HeunDiscreteScheduler": DDPM,
    "KDPM2DiscreteScheduler": DDPM,
    "LMSDiscreteScheduler": DDPM,
    "EDMEulerScheduler": KARRAS,
    "EDMDPMSolverMultistepScheduler": KARRAS,
    "ScoreSdeVeScheduler": Family(
        lambda config: ("unit-score", {}), lambda config: stated(config, 2.0), ve_denoising, unit_interval=True
    ),
}


def _family(scheduler: Mapping[str, Any]) -> Family:
    name = scheduler.get("_class_name")
    if name not in FAMILIES or scheduler.get("use_flow_sigmas"):
        raise SelfcalError(f"a model with the scheduler {name} cannot be adopted; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


# --- reading ----------------------------------------------------------------------------------------


def _diffusers() -> Any:
    try:
        import diffusers
    except ImportError:
        raise SelfcalError("this needs diffusers; install it with: pip install 'selfcal[diffusers]'") from None
    return diffusers


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise SelfcalError(f"{file.parent} is not a diffusers pipeline: it has no {file.name}") from None
    except (OSError, ValueError) as error:
        raise SelfcalError(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise SelfcalError(f"{file} is not a configuration of diffusers")
    return found


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
    return {key: value for key, value in config.items() if not key.startswith("_")}


def _load_weights(model: ScoreModel, folder: Path) -> None:
    """From safetensors only: diffusers' other formats are pickles."""
    try:
        theirs = _diffusers().UNet2DModel.from_pretrained(str(folder), use_safetensors=True, local_files_only=True)
    except Exception as error:  # diffusers raises whatever its parts raise
        raise SelfcalError(
            f"the weights in {folder} cannot be read as safetensors: {' '.join(str(error).split())[:200]}"
        ) from None
    network: Any = model.network
    network.unet.load_state_dict(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        if not tensor.isfinite().all():
            raise SelfcalError(f"{folder} holds NaN or infinite weights, for instance in {name}")


def _noise(network: Any) -> Tensor:
    """Two images' worth, shaped as the network wants them."""
    config = network.unet.config
    size = config.sample_size
    sides = (size, size) if isinstance(size, int) else tuple(size)
    rng = torch.Generator().manual_seed(0)
    return torch.randn((2, config.in_channels, *sides), generator=rng)
