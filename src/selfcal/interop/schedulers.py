"""Schedulers of diffusers: how each kind is read, its range of σ in our units, and its own denoising.

The denoising is what an adopted model's score is compared with before it is believed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.nets.recipes import Recipe

LEVELS = (0.02, 0.3, 0.6, 0.9)  # where in the ladder of noise levels both are compared


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
        alphas = make_scheduler("DDPMScheduler", config).alphas_cumprod.double()
    return [s for s in ((1 - alphas) / alphas).sqrt().tolist() if 0 < s < 1e5]


def ddpm_form(config: Mapping[str, Any]) -> Recipe:
    prediction = config.get("prediction_type", "epsilon")
    if prediction not in ("epsilon", "v_prediction", "sample"):
        raise SelfcalError(f"a model that predicts {prediction!r} cannot be adopted; epsilon, v_prediction, sample can")
    return prediction, {"sigmas": tuple(ladder(config))}


def ddpm_sigmas(config: Mapping[str, Any]) -> tuple[float, float]:
    known = ladder(config)
    if len(known) < 2:
        raise ValueError("its schedule has fewer than two levels of finite noise")
    return known[0], known[-1]


def ddpm_denoising(config: Mapping[str, Any], network: Any) -> Iterator[tuple[Tensor, float, Tensor]]:
    """The x₀ that diffusers predicts at some levels."""
    theirs = make_scheduler("DDPMScheduler", dict(config) | {"clip_sample": False, "thresholding": False})
    known = ladder(config)
    for part in LEVELS:
        number = int(part * (len(known) - 1))
        sigma = known[number]
        x = _noise(network)
        with torch.no_grad():
            out = network.unet(x, torch.full((len(x),), number)).sample
        step = theirs.step(out, number, x, generator=torch.Generator().manual_seed(0))
        yield x * (1 + sigma**2) ** 0.5, sigma, step.pred_original_sample


def euler_denoising(config: Mapping[str, Any], network: Any) -> Iterator[tuple[Tensor, float, Tensor]]:
    """Of schedulers that walk in σ and tell the network a level of their own making."""
    for part in LEVELS:
        theirs = make_scheduler(config["_class_name"], config)
        levels = theirs.config.num_train_timesteps
        theirs.set_timesteps(levels)
        begin = levels - 1 - int(part * (levels - 1))
        theirs.set_begin_index(begin)
        level, sigma = theirs.timesteps[begin], float(theirs.sigmas[begin])
        x = _noise(network) * (1 + sigma**2) ** 0.5
        with torch.no_grad():
            out = network.unet(theirs.scale_model_input(x, level), level.expand(len(x))).sample
        yield x, sigma, theirs.step(out, level, x).pred_original_sample


def edm_form(config: Mapping[str, Any]) -> Recipe:
    prediction = config.get("prediction_type", "epsilon")
    if prediction not in ("epsilon", "v_prediction"):
        raise SelfcalError(f"an EDM model that predicts {prediction!r} cannot be adopted; epsilon and v_prediction can")
    return f"edm-{prediction}", {"sigma_data": config["sigma_data"]}


def edm_denoising(config: Mapping[str, Any], network: Any) -> Iterator[tuple[Tensor, float, Tensor]]:
    theirs = make_scheduler("EDMEulerScheduler", config)
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
    theirs = make_scheduler("ScoreSdeVeScheduler", config)
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
    low, high = float(config["sigma_min"]), float(config["sigma_max"])
    if not 0 < low < high < float("inf"):
        raise ValueError(f"σ from {low} to {high} is no range")
    return scale * low, scale * high


DDPM = Family(ddpm_form, ddpm_sigmas, ddpm_denoising)
EULER = Family(ddpm_form, ddpm_sigmas, euler_denoising)
KARRAS = Family(edm_form, stated, edm_denoising)
FAMILIES: dict[str, Family] = {
    "DDPMScheduler": DDPM,
    "DDIMScheduler": DDPM,
    "PNDMScheduler": DDPM,
    "DEISMultistepScheduler": DDPM,
    "DPMSolverMultistepScheduler": DDPM,
    "DPMSolverSinglestepScheduler": DDPM,
    "UniPCMultistepScheduler": DDPM,
    "EulerDiscreteScheduler": EULER,
    "EulerAncestralDiscreteScheduler": EULER,
    "HeunDiscreteScheduler": DDPM,
    "KDPM2DiscreteScheduler": DDPM,
    "LMSDiscreteScheduler": EULER,
    "EDMEulerScheduler": KARRAS,
    "EDMDPMSolverMultistepScheduler": KARRAS,
    "ScoreSdeVeScheduler": Family(
        lambda config: ("unit-score", {}), lambda config: stated(config, 2.0), ve_denoising, unit_interval=True
    ),
}


def family_of(scheduler: Mapping[str, Any]) -> Family:
    name = str(scheduler.get("_class_name"))
    if name not in FAMILIES or scheduler.get("use_flow_sigmas"):
        raise SelfcalError(f"a model with the scheduler {name} cannot be adopted; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def installed() -> Any:
    try:
        import diffusers
    except ImportError:
        raise SelfcalError("this needs diffusers; install it with: pip install 'selfcal[diffusers]'") from None
    return diffusers


def make_scheduler(name: str, config: Mapping[str, Any]) -> Any:
    """One of diffusers' own; what another of its schedulers noted besides is passed over."""
    kind = getattr(installed(), name)
    return kind(**known_keywords(kind, config))


def known_keywords(kind: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """Configurations carry notes, and keywords of other versions, which diffusers passes over too."""
    known = inspect.signature(kind).parameters
    return {key: value for key, value in config.items() if key in known}


def _noise(network: Any) -> Tensor:
    """Two images' worth, shaped as the network wants them."""
    config = network.unet.config
    size = config.sample_size
    sides = (size, size) if isinstance(size, int) else tuple(size)
    rng = torch.Generator().manual_seed(0)
    return torch.randn((2, config.in_channels, *sides), generator=rng)
