"""How many samples an evaluation draws: as many as a few minutes allow here, from a measured speed, and said."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from selfcal.core.bounds import check_memory
from selfcal.core.errors import SelfcalError
from selfcal.data.dataset import Dataset
from selfcal.diffusion.generator import Generator, Sampling, checked, spread

MINUTES = 4.0  # a fifth of a training of twenty minutes
SHARE = 0.6  # of that for drawing samples; the rest goes into features, and into the guide's own quality
MOST = 5000  # samples, unless the user asks for more
LADDER = (5000, 2000, 1000, 500, 300, 200, 100, 50)  # few counts, so that results of one machine and another compare
FOR_CHOOSING = 500  # samples per λ are enough to tell which is best,
EACH = 20  # and so many of a class the least
TRIED = 32  # images on which the speed is measured


@dataclass(frozen=True)
class Effort:
    """What will be drawn."""

    count: int  # samples that numbers are reported of
    for_choosing: int  # samples of each λ on which one is chosen
    seconds: float  # that drawing all of them takes here, about

    def in_words(self, scales: Sequence[float], reported: int) -> str:
        words = f"{self.count} samples" + (f" of each of {reported} λ" if reported > 1 else "")
        if len(scales) > 1:
            listed = ", ".join(f"{s:g}" for s in scales)
            words += f", and {self.for_choosing} of each of λ = {listed} to choose one"
        return f"drawing {words}: about {in_minutes(self.seconds)} here"


def planned(
    count: int | None,
    data: Dataset,
    seconds_each: float,
    tried: int,
    reported: int,
    minutes: float = MINUTES,
    sparing: bool = False,
) -> Effort:
    """As asked for, or what fits into the time: at most as many as there are training images.

    tried: how many λ one is chosen of, reported: how many are. sparing: fewer samples for choosing than for reporting.
    """
    classes = len(data.classes)

    def effort(samples: int) -> Effort:
        choosing = samples if not sparing else min(samples, max(EACH * classes, min(FOR_CHOOSING, samples // 4)))
        return Effort(samples, choosing, seconds_each * (reported * samples + tried * choosing))

    most = how_many(count, data)
    if count is not None:
        return effort(most)
    fitting = [n for n in (most, *LADDER) if 2 * classes <= n <= most]
    allowed = SHARE * 60 * minutes
    return next((e for e in map(effort, fitting) if e.seconds <= allowed), effort(fitting[-1]))


def how_many(count: int | None, data: Dataset) -> int:
    """Samples per guidance scale: as asked for, or about as many as there are training images."""
    classes = len(data.classes)
    if count is None:
        return max(2, min(MOST, len(data.x)) // classes) * classes
    if count < 2 * classes:
        raise SelfcalError(f"--count {count}: at least 2 images for each of {classes} classes are needed")
    check_memory(4.0 * count * math.prod(data.shape), f"--count {count}", "fewer samples are measured as well")
    return count


def seconds_per_sample(generator: Generator, how: Sampling) -> float:
    """Measured on one evaluation of a few images, after one to warm up."""
    how = how.completed(generator.usual)
    walk, guide, scale, steps = checked(how, generator.networks)
    y = spread(range(len(generator.classes)), TRIED).to(generator.device)
    score = guide.score(generator.networks, y, scale)
    x = torch.randn((TRIED, *generator.shape), generator=torch.Generator().manual_seed(0)).to(generator.device)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        score(x, torch.ones(TRIED, device=generator.device)).sum().item()
        times.append(time.perf_counter() - began)
    return min(times[1:]) / TRIED * walk.evaluations(steps)


def in_minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"
