"""What the configuration of a diffusers scheduler means: how its network predicts, and which σ it knows.

An adopted model is kept as two plain dictionaries, {"unet": …, "scheduler": …}, and its weights;
the keywords of its network and of its form are read from them here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from selfcal.core.errors import SelfcalError

Keywords = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """How a kind of scheduler is read: the keywords of its form (see nets/foreign.py), its range of σ in our units."""

    form: Callable[[Mapping[str, Any]], Keywords]
    sigmas: Callable[[Mapping[str, Any]], tuple[float, float]]
    unit_interval: bool = False  # trained on data in [0, 1]


def ladder(config: Mapping[str, Any]) -> list[float]:
    """σ of every numbered level that is still finite (a schedule may end in pure noise)."""
    import torch

    with torch.device("cpu"):  # numbers are needed even where networks are made without memory
        alphas = make_scheduler("DDPMScheduler", config).alphas_cumprod.double()
    return [s for s in ((1 - alphas) / alphas).sqrt().tolist() if 0 < s < 1e5]


def ddpm_form(config: Mapping[str, Any]) -> Keywords:
    prediction = config.get("prediction_type", "epsilon")
    if prediction not in ("epsilon", "v_prediction", "sample"):
        raise SelfcalError(f"a model that predicts {prediction!r} cannot be adopted; epsilon, v_prediction, sample can")
    return {"predicts": prediction, "sigmas": ladder(config)}


def ddpm_sigmas(config: Mapping[str, Any]) -> tuple[float, float]:
    levels = ladder(config)
    if len(levels) < 2:
        raise ValueError("its schedule has fewer than two levels of finite noise")
    return levels[0], levels[-1]


def edm_form(config: Mapping[str, Any]) -> Keywords:
    prediction = config.get("prediction_type", "epsilon")
    if prediction not in ("epsilon", "v_prediction"):
        raise SelfcalError(f"an EDM model that predicts {prediction!r} cannot be adopted; epsilon and v_prediction can")
    return {"predicts": f"edm-{prediction}", "sigma_data": config["sigma_data"]}


def stated(config: Mapping[str, Any], scale: float = 1.0) -> tuple[float, float]:
    low, high = float(config["sigma_min"]), float(config["sigma_max"])
    if not 0 < low < high < float("inf"):
        raise ValueError(f"σ from {low} to {high} is no range")
    return scale * low, scale * high


DDPM = Family(ddpm_form, ddpm_sigmas)
KARRAS = Family(edm_form, stated)
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
        lambda config: {"predicts": "unit-score"}, lambda config: stated(config, 2.0), unit_interval=True
    ),
}


def family_of(scheduler: Mapping[str, Any]) -> Family:
    name = str(scheduler.get("_class_name"))
    if name not in FAMILIES or scheduler.get("use_flow_sigmas"):
        raise SelfcalError(f"a model with the scheduler {name} cannot be adopted; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def network_keywords(adopted: Mapping[str, Any]) -> Keywords:
    return {"config": dict(adopted["unet"]), "unit_interval": family_of(adopted["scheduler"]).unit_interval}


def form_keywords(adopted: Mapping[str, Any]) -> Keywords:
    return family_of(adopted["scheduler"]).form(adopted["scheduler"])


def in_words(adopted: Mapping[str, Any]) -> str:
    scheduler = adopted["scheduler"]
    predicted = scheduler.get("prediction_type", "score" if family_of(scheduler).unit_interval else "epsilon")
    return f"UNet2DModel that predicts {predicted}, {scheduler['_class_name']}"


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
    keywords = inspect.signature(kind).parameters
    return {key: value for key, value in config.items() if key in keywords}
