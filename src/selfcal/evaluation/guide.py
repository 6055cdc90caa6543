"""How good the guide itself is: accuracy and calibration on images whose labels it never saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from selfcal import metrics
from selfcal.core.progress import bar
from selfcal.data.dataset import Dataset
from selfcal.data.pixels import Examples, some
from selfcal.diffusion.generator import Generator
from selfcal.diffusion.guidance import inner_unconditional
from selfcal.diffusion.scores import UNLABELED, ScoreFn
from selfcal.metrics import interval

T = TypeVar("T")
REPEATS = 5  # noise draws per test image, for guide accuracy at σ > σ_min
LARGER_IMAGES = ((16 * 16, 5000, 500), (32 * 32, 2000, 500))  # pixels up to which: draws, images for losses
BEYOND = (1000, 200)


def draws_and_images(shape: tuple[int, ...]) -> tuple[int, int]:
    """Noisy images per level on which the guide is judged, at most (large test sets are thinned there), and images on
    which losses of scores are measured: fewer where networks are slower."""
    pixels = math.prod(shape[1:]) if len(shape) == 3 else 1
    return next(((draws, images) for most, draws, images in LARGER_IMAGES if pixels <= most), BEYOND)


@dataclass(frozen=True)
class Subject:
    """What is evaluated: a generator, the data and labels it learned from, what its numbers must say of themselves."""

    generator: Generator
    data: Dataset
    labels: Tensor  # (N,), UNLABELED where hidden from the method
    about: dict[str, Any]


def guide_split(subject: Subject) -> tuple[Examples, Tensor, str]:
    """Images with known classes whose labels the guide never saw: the test split, else the hidden ones."""
    data = subject.data
    labelled = data.y_test != UNLABELED
    if labelled.any():
        return some(data.x_test, labelled), data.y_test[labelled], "test"
    hidden = (subject.labels == UNLABELED) & (data.y != UNLABELED)
    return some(data.x, hidden), data.y[hidden], "training images whose labels were hidden"


def learned_by_sigma(subject: Subject, show_progress: bool = False) -> list[dict[str, float | None]]:
    """At growing noise, the denoising loss of the guide's inner score and of the score model, as fractions of a zero
    score's: 1 has learned nothing. On images that were not trained on, where there are any."""
    generator, data = subject.generator, subject.data
    networks = generator.networks
    if "classifier" not in networks:
        return []
    x0 = evenly(data.x_test if len(data.x_test) else data.x, draws_and_images(data.shape)[1])
    scores = {"guide": inner_unconditional(networks["classifier"]), "score": networks.get("score")}
    own, found = generator.team.mine([1.0] * len(levels(generator))), {}
    with bar("losses of the scores", len(own), show=show_progress and is_large(data.shape)) as tick:
        for i, sigma in enumerate(levels(generator)):
            if i in own:
                z = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
                row = {role: None if s is None else _fraction(s, x0, z, sigma, generator) for role, s in scores.items()}
                found[i] = {"sigma": sigma, **row}
                tick(1, "noise levels")
    return in_order(generator.team.merged(found))


def _fraction(score: ScoreFn, x0: Tensor, z: Tensor, sigma: float, generator: Generator) -> float:
    """‖σ s(x₀ + σ z, σ) + z‖² / ‖z‖², over all examples."""
    error = 0.0
    for part, noise in zip(x0.split(generator.batch), z.split(generator.batch), strict=True):
        level = torch.full((len(part),), sigma, device=generator.device)
        with torch.no_grad():
            s = score((part + sigma * noise).to(generator.device), level).cpu()
        error += float((sigma * s + noise).square().sum())
    return error / float(z.square().sum())


def levels(generator: Generator) -> list[float]:
    """From σ_min up, equal ratios."""
    return generator.noise.geometric(9)[:-1].flip(0).tolist()


def evenly(x: Examples, most: int) -> Tensor:
    """At most so many examples, spread over all."""
    return x[:: max(1, -(-len(x) // most))]


def ece_interval(subject: Subject, clean: Tensor | None = None) -> dict[str, list[float] | None]:
    """The interval of the guide's calibration error on clean images, leaving out a tenth of the images in turn.

    clean: what `clean_opinions` found, if it is known already.
    """
    x, y, _ = guide_split(subject)
    probabilities = shared_opinions(subject.generator, x) if clean is None else clean

    def of(mask: Tensor) -> dict[str, float | None]:
        return {"ece": metrics.expected_calibration_error(probabilities[mask], y[mask])}

    if len(x) < 2 * interval.GROUPS:
        return {"ece": None}
    return interval.jackknife(of, of(torch.ones(len(x), dtype=torch.bool)), len(x))


def guide_by_sigma(
    subject: Subject, show_progress: bool = False, clean: Tensor | None = None
) -> list[dict[str, float]]:
    """Accuracy and calibration of the guide at σ_min (clean images) and at growing noise; nothing without a guide.

    clean: what `clean_opinions` found, if it is known already.
    """
    x, y, _ = guide_split(subject)
    clean = clean_opinions(subject, show_progress) if clean is None else clean
    if clean is None:
        return []
    return quality_by_sigma(subject.generator, x, y, clean, show_progress)


def quality_by_sigma(
    generator: Generator, x: Examples, y: Tensor, clean: Tensor, show_progress: bool = False
) -> list[dict[str, float]]:
    """The same on any images x (N, *) of known classes y, of which `clean` (N, K) is what the guide makes of them."""
    rng, (draws, _) = torch.Generator().manual_seed(0), draws_and_images(generator.shape)
    smallest, *others = levels(generator)  # the smallest stands for clean images
    repeats, thinned = max(1, min(REPEATS, draws // len(x))), slice(None, None, -(-len(x) // draws))
    own, found = generator.team.mine([1.0] * len(others)), {}
    with bar("the guide at every noise", len(own), show=show_progress and is_large(x.shape[1:])) as tick:
        for i, sigma in enumerate(others):
            noisy = x[thinned].repeat(repeats, *[1] * (x.ndim - 1))
            noisy = noisy + sigma * torch.randn(noisy.shape, generator=rng)
            if i in own:
                seen = opinions(generator, noisy, sigma)
                found[i] = {"sigma": sigma, **quality(seen, y[thinned].repeat(repeats))}
                tick(1, "noise levels")
    return [{"sigma": smallest, **quality(clean, y)}, *in_order(generator.team.merged(found))]


def in_order(found: Mapping[int, T]) -> list[T]:
    return [found[i] for i in sorted(found)]


def opinions(generator: Generator, x: Examples, sigma: float | None = None) -> Tensor:
    """p(y | x) of the guide, (B, K), images that are bytes becoming floats a batch at a time."""
    level = generator.noise.sigma_min if sigma is None else sigma
    parts = [generator.predict_proba(part, level) for part in x.split(generator.batch)]
    return torch.cat(parts) if parts else torch.zeros(0, len(generator.classes))


def shared_opinions(generator: Generator, x: Examples, show_progress: bool = False) -> Tensor:
    """Of clean images; each process asks about some of them."""
    starts, team = range(0, len(x), generator.batch), generator.team
    show = show_progress and len(starts) > 1 and is_large(x.shape[1:])
    with bar("the guide on clean images", -(-len(starts) // team.world), show=show) as tick:

        def part(start: int) -> Tensor:
            found = opinions(generator, some(x, slice(start, start + generator.batch)))
            tick(1, f"batches of {generator.batch}")
            return found

        found = team.each([partial(part, start) for start in starts])
    return torch.cat(found) if found else torch.zeros(0, len(generator.classes))


def clean_opinions(subject: Subject, show_progress: bool = False) -> Tensor | None:
    """What the guide makes of the images that it is judged on; None where there is no guide, or none such."""
    x, _, _ = guide_split(subject)
    if "classifier" not in subject.generator.networks or not len(x):
        return None
    return shared_opinions(subject.generator, x, show_progress)


def quality(probabilities: Tensor, y: Tensor) -> dict[str, float]:
    return {
        "accuracy": metrics.generation_accuracy(probabilities, y),
        "ece": metrics.expected_calibration_error(probabilities, y),
        "confidence": float(probabilities.max(-1).values.double().mean()),
    }


def is_large(shape: Sequence[int]) -> bool:
    """Images whose networks take more than a moment."""
    return len(shape) == 3 and math.prod(shape[1:]) > LARGER_IMAGES[0][0]
