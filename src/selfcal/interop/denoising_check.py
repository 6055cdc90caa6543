"""Whether a model from elsewhere denoises real images under its conventions, before a guide is trained on it.

One forward pass at each σ serves all readings of the network's output: a wrong one is told by its name. A wrong
schedule tells the network of another noise than there is: then it denoises better when told of another level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.data.pixels import Examples
from selfcal.diffusion.scores import like
from selfcal.nets.forms import ScoreModel
from selfcal.nets.own_module import READINGS, OwnForm

LEVELS = 6
RANGE = (0.2, 4.0)  # of σ: less leaves nothing to see, in more a good network may still be off by its own errors
SHIFTS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of the σ that the network is told
BETTER = 0.9  # another reading or level that leaves less than so much of the error is the right one
ENOUGH = 1000  # examples of which the spread is taken
AS_IT_IS = "as it is"
SLACK = 1.25  # a network that has hardly been trained may be that much worse than shrinking
MOST_NUMBERS, FEWEST = 2**14, 8  # numbers in a batch, and its examples where each has many
MOST_FOR_SPREAD = 2000  # examples, or a few more


@dataclass(frozen=True)
class Seen:
    """At one σ: the squared error per pixel by reading and by what the network was told, and those of simple means."""

    sigma: float
    readings: dict[str, float]
    shifts: dict[float, float]
    shrinking: float  # of drawing every noisy image towards the mean image

    @property
    def nothing(self) -> float:
        return self.sigma**2


def check_denoising(
    model: ScoreModel,
    x: Examples,
    low: float,
    high: float,
    name: str,
    advice: Callable[[str], str] = 'did you mean predicts="{}"?'.format,
) -> str:
    """Refuses in words; or says how much of the noise is left. x: real examples; the model's form is an `OwnForm`."""
    form: Any = model.form
    x = some_of(x)
    seen = [look(model, form, x, sigma) for sigma in levels(low, high)]
    check_reading(seen, form.predicts, name, advice)
    check_schedule(seen, name)
    return check_gain(seen, form.predicts, name)


def check_as_it_is(model: ScoreModel, x: Examples, low: float, high: float, name: str) -> str:
    """The same for a model of any form: whether it denoises, without a guess at what is wrong."""
    x = some_of(x)
    return check_gain([look_once(model, x, sigma) for sigma in levels(low, high)], AS_IT_IS, name)


def check_gain(seen: list[Seen], predicts: str, name: str) -> str:
    """It must beat doing nothing, and hold its own against what needs no network.

    At the smallest σ alone it need not: one that predicts the image itself may blur it by more than that noise.
    """
    for s in seen[1:] or seen:
        if not denoises(seen, predicts) or not s.readings[predicts] < s.nothing:
            raise SelfcalError(
                f"{name} does not denoise as given: {numbers(s, predicts)}, and drawing the image towards the "
                f"mean image {s.shrinking:.3g}; check what it predicts, its schedule and what it is told of the noise, "
                "that it was trained on images like these, in [−1, 1], and that it was trained at all"
            )
    return f"denoises real examples: {numbers(seen[len(seen) // 2], predicts)}"


def denoises(seen: list[Seen], predicts: str) -> bool:
    """Over all σ about as well as what needs no network."""
    return mean_log([s.readings[predicts] for s in seen]) < mean_log([SLACK * s.shrinking for s in seen])


def levels(low: float, high: float) -> list[float]:
    """σ in the middle of what the model knows."""
    low, high = max(low, RANGE[0]), min(high, RANGE[1])
    if low >= high:
        return [(low * high) ** 0.5]
    return [low * (high / low) ** (i / (LEVELS - 1)) for i in range(LEVELS)]


def some_of(x: Examples) -> Tensor:
    """Enough to know their mean and spread; a large data set is not made floats as a whole for that."""
    found: Tensor = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:ENOUGH]]
    return found


def noisy_examples(model: ScoreModel, x: Tensor, sigma: float) -> tuple[Tensor, Tensor, Tensor]:
    """Real ones, the same with noise, and σ of each, where the model is."""
    rng = torch.Generator().manual_seed(0)
    many = min(len(x), max(FEWEST, MOST_NUMBERS // x[0].numel()))
    x0 = x[torch.randperm(len(x), generator=rng)[:many]]
    noisy = x0 + sigma * torch.randn(x0.shape, generator=rng)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return x0.to(device), noisy.to(device), torch.full((many,), sigma, device=device)


def shrunk(x: Tensor, sigma: float) -> float:
    """What is left when every noisy image is drawn towards the mean image as far as is best."""
    spread = float(x[:: max(1, len(x) // MOST_FOR_SPREAD)].var(0).mean())
    return spread * sigma**2 / (spread + sigma**2)


@torch.no_grad()
def look_once(model: ScoreModel, x: Tensor, sigma: float) -> Seen:
    x0, noisy, level = noisy_examples(model, x, sigma)
    left = float((model.denoise(noisy, level) - x0).square().mean())
    return Seen(sigma, {AS_IT_IS: left}, {1.0: left}, shrunk(x, sigma))


@torch.no_grad()
def look(model: ScoreModel, form: OwnForm, x: Tensor, sigma: float) -> Seen:
    x0, noisy, level = noisy_examples(model, x, sigma)

    def error(predicts: str, out: Tensor) -> float:
        c = form.read_as(predicts, like(level, noisy))
        return float((c.skip * noisy + c.out * out - x0).square().mean())

    outs = {}
    for shift in SHIFTS:
        c = form(like(level, noisy))
        outs[shift] = call(model, noisy / c.shrink, form.level(level * shift))
    readings = {predicts: error(predicts, outs[1.0]) for predicts in READINGS if predicts != "v" or form.keeps_variance}
    shifts = {shift: error(form.predicts, out) for shift, out in outs.items()}
    return Seen(sigma, readings, shifts, shrunk(x, sigma))


def call(model: ScoreModel, x: Tensor, told: Tensor) -> Tensor:
    """The network itself; whatever a module of somebody else's raises is one sentence."""
    try:
        out: Tensor = model.network(x, told)
    except SelfcalError:
        raise
    except Exception as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SelfcalError(
            f"the adopted module fails on x {tuple(x.shape)} and t from {told.min():.4g} to {told.max():.4g}: {said}"
        ) from None
    if not out.isfinite().all():
        raise SelfcalError(f"the adopted module gives NaN or infinite values at t = {told.min():.4g}")
    return out


def check_reading(seen: list[Seen], predicts: str, name: str, advice: Callable[[str], str]) -> None:
    total = {p: mean_log([s.readings[p] for s in seen]) for p in seen[0].readings}
    best = min(total, key=lambda p: total[p])
    if best != predicts and denoises(seen, best) and total[best] < total[predicts] + mean_log([BETTER]):
        s = max(seen, key=lambda s: s.readings[predicts] / s.readings[best])
        raise SelfcalError(
            f'{name} does not predict "{predicts}": {numbers(s, predicts)}, but {s.readings[best]:.3g} if its '
            f'output is read as "{best}"; {advice(best)}'
        )


def check_schedule(seen: list[Seen], name: str) -> None:
    """Told of the right noise it denoises best; gains at single levels can be chance, their mean is not."""
    gains = [min(s.shifts.values()) / s.shifts[1.0] for s in seen]
    if mean_log(gains) < mean_log([BETTER]):
        s = seen[min(range(len(seen)), key=lambda i: gains[i])]
        shift = min(s.shifts, key=lambda shift: s.shifts[shift])
        raise SelfcalError(
            f"{name} was trained with another schedule than given: at σ = {s.sigma:.2g} it leaves a squared error of "
            f"{s.shifts[1.0]:.3g} per pixel, but {s.shifts[shift]:.3g} when told of σ = {s.sigma * shift:.2g} instead; "
            "check betas, alphas_cumprod or sigmas, and time"
        )


def mean_log(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).clamp(min=1e-12).log().mean())


def numbers(s: Seen, predicts: str) -> str:
    return (
        f"at σ = {s.sigma:.2g} it leaves a squared error of {s.readings[predicts]:.3g} per pixel, "
        f"doing nothing {s.nothing:.3g}"
    )
