"""How good the guide itself is: accuracy and calibration on images whose labels it never saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selfcal import metrics
from selfcal.data.dataset import Dataset
from selfcal.diffusion.generator import Generator
from selfcal.diffusion.scores import UNLABELED
from selfcal.metrics import interval

REPEATS = 5  # noise draws per test image, for guide accuracy at σ > σ_min
DRAWS = 5000  # but no more in all: large test sets are thinned there


@dataclass(frozen=True)
class Subject:
    """What is evaluated: a generator, the data and labels it learned from, what its numbers must say of themselves."""

    generator: Generator
    data: Dataset
    labels: Tensor  # (N,), UNLABELED where hidden from the method
    about: dict[str, Any]


def guide_split(subject: Subject) -> tuple[Tensor, Tensor, str]:
    """Images with known classes whose labels the guide never saw: the test split, else the hidden ones."""
    data = subject.data
    if len(data.x_test):
        labelled = data.y_test != UNLABELED
        return data.x_test[labelled], data.y_test[labelled], "test"
    hidden = (subject.labels == UNLABELED) & (data.y != UNLABELED)
    return data.x[hidden], data.y[hidden], "training images whose labels were hidden"


def ece_interval(subject: Subject) -> dict[str, list[float] | None]:
    """The interval of the guide's calibration error on clean images, leaving out a tenth of the images in turn."""
    x, y, _ = guide_split(subject)
    probabilities = subject.generator.predict_proba(x)

    def of(mask: Tensor) -> dict[str, float | None]:
        return {"ece": metrics.expected_calibration_error(probabilities[mask], y[mask])}

    if len(x) < 2 * interval.GROUPS:
        return {"ece": None}
    return interval.jackknife(of, of(torch.ones(len(x), dtype=torch.bool)), len(x))


def guide_by_sigma(subject: Subject) -> list[dict[str, float]]:
    """Accuracy and calibration of the guide at σ_min (clean images) and at growing noise; nothing without a guide."""
    generator = subject.generator
    x, y, _ = guide_split(subject)
    if "classifier" not in generator.networks or not len(x):
        return []
    rng = torch.Generator().manual_seed(0)
    levels = generator.noise.geometric(9)[:-1].flip(0).tolist()
    table = []
    for i, sigma in enumerate(levels):
        repeats = 1 if i == 0 else max(1, min(REPEATS, DRAWS // len(x)))
        thinned = slice(None, None, 1 if i == 0 else -(-len(x) // DRAWS))
        noisy = x[thinned].repeat(repeats, *[1] * (x.ndim - 1))
        if i > 0:  # the smallest level stands for clean images
            noisy = noisy + sigma * torch.randn(noisy.shape, generator=rng)
        probabilities, truth = generator.predict_proba(noisy, sigma), y[thinned].repeat(repeats)
        table.append(
            {
                "sigma": sigma,
                "accuracy": metrics.generation_accuracy(probabilities, truth),
                "ece": metrics.expected_calibration_error(probabilities, truth),
                "confidence": float(probabilities.max(-1).values.double().mean()),
            }
        )
    return table
