"""What a module from elsewhere predicts, which noise it knows, how it is told of it: from words to a form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError, look_up

PREDICTS = {"epsilon": "epsilon", "v": "v", "x0": "x0", "denoised": "x0", "score": "score"}
MOST_LEVELS = 100_000
LARGEST = 1e5  # σ: beyond it nothing of an image is left
POINTS = 1025  # at which a user's own function of σ is noted down
SMOOTH = 1e-3  # of its span: what may lie between two of these points

Numbers = Sequence[float] | Tensor
Time = str | Callable[[Tensor], Tensor] | None


@dataclass(frozen=True)
class Conventions:
    """As `selfcal.adopt` takes them."""

    predicts: str | None = None
    betas: Numbers | None = None
    alphas_cumprod: Numbers | None = None
    sigmas: Numbers | None = None
    time: Time = None

    @property
    def given(self) -> list[str]:
        return [name for name, value in vars(self).items() if value is not None]

    def form(self) -> dict[str, Any]:
        """The keywords of an `OwnForm`, plain enough for config.json."""
        if self.predicts is None:
            raise SelfcalError(f"say what the module predicts: predicts= one of {', '.join(PREDICTS)}")
        predicts = look_up("prediction", self.predicts, PREDICTS)
        levels, keeps_variance = self._levels()
        if predicts == "v" and not keeps_variance:
            raise SelfcalError('predicts="v" mixes image and noise as DDPM does; give betas= or alphas_cumprod=')
        sigmas, told = self._told(levels, keeps_variance)
        return {"predicts": predicts, "keeps_variance": keeps_variance, "sigmas": sigmas, "told": told}

    def _levels(self) -> tuple[Tensor, bool]:
        """σ of every level, as they are numbered, and whether the model keeps the variance."""
        schedules = {"betas": self.betas, "alphas_cumprod": self.alphas_cumprod, "sigmas": self.sigmas}
        named = [name for name, values in schedules.items() if values is not None]
        if len(named) != 1:
            found = " and ".join(named) or "none"
            raise SelfcalError(
                f"give the module's schedule as one of betas=, alphas_cumprod= or sigmas=; found {found}"
            )
        name = named[0]
        values = numbers_of(schedules[name], name)
        if name == "sigmas":
            return checked_levels(values, name), False
        inside(values, name)
        kept = (1 - values).cumprod(0) if name == "betas" else values
        return checked_levels(((1 - kept) / kept).sqrt(), name), True

    def _told(self, levels: Tensor, keeps_variance: bool) -> tuple[list[float], list[float]]:
        """(σ ascending, what the network is told at each); nothing told: σ itself."""
        places = torch.arange(len(levels), dtype=torch.float64)
        ascending, places = (levels, places) if levels[0] < levels[-1] else (levels.flip(0), places.flip(0))
        usable = ascending < LARGEST  # a schedule may end in pure noise
        ascending, places = ascending[usable], places[usable]
        if len(ascending) < 2:
            raise SelfcalError(
                f"the schedule has {len(ascending)} levels of σ below {LARGEST:g}; at least 2 are needed"
            )
        time = self.time or ("index" if keeps_variance or len(levels) > 2 else "sigma")
        if time == "sigma":
            return [float(ascending[0]), float(ascending[-1])], []
        if callable(time):
            return tabulated(time, float(ascending[0]), float(ascending[-1]))
        if time != "index":
            raise SelfcalError(f'time = {time!r}: give "index", "sigma", or a function of a tensor of σ')
        return ascending.tolist(), places.tolist()


def numbers_of(values: Any, name: str) -> Tensor:
    try:
        numbers = torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise SelfcalError(f"{name} must be a list of numbers, not {type(values).__name__}") from None
    if numbers.ndim != 1 or not 2 <= len(numbers) <= MOST_LEVELS:
        raise SelfcalError(f"{name} is shaped {tuple(numbers.shape)}; a list of 2 to {MOST_LEVELS} numbers is needed")
    return numbers


def inside(values: Tensor, name: str) -> None:
    if not ((values >= 0) & (values <= 1)).all():
        raise SelfcalError(f"{name} go from {values.min():.3g} to {values.max():.3g}; they lie between 0 and 1")


def checked_levels(sigmas: Tensor, name: str) -> Tensor:
    """In order, and above nothing."""
    rises = sigmas.diff()
    if not (((rises > 0).all() or (rises < 0).all()) and 0 < sigmas.min() < math.inf):
        raise SelfcalError(f"the noise levels that {name} say must rise or fall from level to level and lie above 0")
    return sigmas


def tabulated(time: Callable[[Tensor], Tensor], low: float, high: float) -> tuple[list[float], list[float]]:
    """A function of σ at many points, between which it must be smooth: so a run needs not its code."""
    sigmas = torch.logspace(math.log10(low), math.log10(high), POINTS, dtype=torch.float64)
    between = (sigmas[1:] * sigmas[:-1]).sqrt()
    try:
        told, middle = (torch.as_tensor(time(s.float())).double().reshape(-1) for s in (sigmas, between))
    except Exception as error:
        raise SelfcalError(f"time(σ) fails on a tensor of σ: {error}") from None
    if told.shape != sigmas.shape or not told.isfinite().all():
        raise SelfcalError("time(σ) must give one finite number for every σ of a tensor (B,)")
    off = (middle - (told[1:] + told[:-1]) / 2).abs().max() / (told.max() - told.min()).clamp(min=1e-12)
    if off > SMOOTH:
        raise SelfcalError(f"time(σ) jumps by {off:.1%} of its span between two of {POINTS} values; it must be smooth")
    return sigmas.tolist(), told.tolist()
