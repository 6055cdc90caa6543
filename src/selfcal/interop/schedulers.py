"""The denoising that schedulers of diffusers do themselves, with which an adopted score is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from selfcal.nets.foreign_schedules import ladder, make_scheduler

LEVELS = (0.02, 0.3, 0.6, 0.9)  # where in the ladder of noise levels both are compared

Denoising = Iterator[tuple[Tensor, float, Tensor]]
"""(x_σ in our units, σ, the denoised image), at several levels."""


def ddpm_denoising(config: Mapping[str, Any], network: Any) -> Denoising:
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


def euler_denoising(config: Mapping[str, Any], network: Any) -> Denoising:
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


def edm_denoising(config: Mapping[str, Any], network: Any) -> Denoising:
    theirs = make_scheduler("EDMEulerScheduler", config)
    low, high = config["sigma_min"], config["sigma_max"]
    for part in LEVELS:
        sigma = low * (high / low) ** part
        x = _noise(network) * (sigma**2 + config["sigma_data"] ** 2) ** 0.5
        level = theirs.precondition_noise(torch.tensor(sigma)).expand(len(x))
        with torch.no_grad():
            out = network.unet(theirs.precondition_inputs(x, sigma), level).sample
        yield x, sigma, theirs.precondition_outputs(x, out, sigma)


def ve_denoising(config: Mapping[str, Any], network: Any) -> Denoising:
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


OWN: dict[str, Callable[[Mapping[str, Any], Any], Denoising]] = {
    "EulerDiscreteScheduler": euler_denoising,
    "EulerAncestralDiscreteScheduler": euler_denoising,
    "LMSDiscreteScheduler": euler_denoising,
    "EDMEulerScheduler": edm_denoising,
    "EDMDPMSolverMultistepScheduler": edm_denoising,
    "ScoreSdeVeScheduler": ve_denoising,
}


def own_denoising(scheduler: Mapping[str, Any], network: Any) -> Denoising:
    """All others denoise as DDPM does."""
    return OWN.get(scheduler["_class_name"], ddpm_denoising)(scheduler, network)


def _noise(network: Any) -> Tensor:
    """Two images' worth, shaped as the network wants them."""
    config = network.unet.config
    size = config.sample_size
    sides = (size, size) if isinstance(size, int) else tuple(size)
    rng = torch.Generator().manual_seed(0)
    return torch.randn((2, config.in_channels, *sides), generator=rng)
