"""Evaluation against 60,000 images: as it is, and as it was before the real images' side was computed once."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import Tensor

from selfcal import metrics
from selfcal.core.progress import lines_only
from selfcal.data.pixels import some
from selfcal.data.sources import load_data
from selfcal.diffusion.samples import Samples
from selfcal.evaluation.features import Features
from selfcal.evaluation.reference import NEIGHBOURS, Reference
from selfcal.metrics import interval
from selfcal.metrics.prdc import Balls

SAMPLES, DIMENSIONS = 1000, 64
PART = 7500  # real images on which all pairs are timed as before; their time grows with the square
FEW = 3000  # on which everything is compared


def stand_in() -> Features:
    """As many numbers as the judge's, without training it: a fixed projection of the pixels."""
    directions = torch.randn(28 * 28, DIMENSIONS, generator=torch.Generator().manual_seed(0)) / 28
    return Features("projection", "0" * 64, lambda x: (x.flatten(1) @ directions).tanh())


def samples_of(data) -> Samples:
    """Test images with a little noise stand for generated ones."""
    pick = torch.cat([(data.y_test == c).nonzero()[: SAMPLES // 10, 0] for c in range(10)])
    noise = 0.1 * torch.randn(len(pick), *data.shape, generator=torch.Generator().manual_seed(1))
    return Samples(data.x_test[pick] + noise, data.y_test[pick], data.classes, {})


def kid_over_all_pairs(real: Tensor, fake: Tensor) -> float:
    real, fake = real.double(), fake.double()
    n, m = len(real), len(fake)

    def total(a: Tensor, b: Tensor) -> float:
        return sum(float((rows @ b.T / b.shape[1] + 1).pow(3).sum()) for rows in a.split(2048))

    def diagonal(a: Tensor) -> float:
        return float((a.square().sum(-1) / a.shape[1] + 1).pow(3).sum())

    own = (total(real, real) - diagonal(real)) / (n * (n - 1)) + (total(fake, fake) - diagonal(fake)) / (m * (m - 1))
    return own - 2 * total(real, fake) / (n * m)


def as_before(real: Tensor, y_real: Tensor, fake: Tensor, y: Tensor, balls: Balls) -> dict[str, float]:
    """One of the eleven measurements: of all samples, or of all but a tenth."""

    def intra(metric) -> float:
        return metrics.per_class(metric, real, y_real, fake, y)

    density, coverage = balls.density_coverage(fake)
    return {
        "intra_fid": intra(metrics.fid),
        "fid": metrics.fid(real, fake),
        "kid": kid_over_all_pairs(real, fake),
        "density": density,
        "coverage": coverage,
        "intra_density": intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[0]),
        "intra_coverage": intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[1]),
    }


def evaluation_against_before() -> tuple[float, float, float]:
    """(seconds, how many times faster than before, largest relative difference), the features being cached."""
    lines_only()
    data, judge = load_data("builtin:fashion"), stand_in()
    samples = samples_of(data)
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):
        Reference(data, judge, show_progress=True)  # fills the cache
        began = time.perf_counter()
        reference = Reference(data, judge)
        reference.measure(samples, intervals=True)
        reference.by_class(samples)
        seconds = time.perf_counter() - began
        real, fake = reference.features, judge.embed(samples.x)
    balls = reference.whole.near.balls
    began = time.perf_counter()
    kid_over_all_pairs(real[:PART], fake)
    pairs = (time.perf_counter() - began) * (len(real) / PART) ** 2
    began = time.perf_counter()
    with patch(f"{__name__}.kid_over_all_pairs", lambda real, fake: 0.0):
        as_before(real, data.y, fake, samples.y, balls)
    rest = time.perf_counter() - began
    return seconds, (1 + interval.GROUPS) * (pairs + rest) / seconds, differences(data, judge, samples)


def differences(data, judge: Features, samples: Samples) -> float:
    """Between all numbers and intervals, as they are and as they were, over some of the real images."""
    few = replace(data, x=some(data.x, slice(FEW)), y=data.y[:FEW], names=data.names[:FEW])
    values, ranges = Reference(few, judge).measure(samples, intervals=True)
    real, fake = judge.embed(few.x[:]), judge.embed(samples.x)
    balls = Balls(real, NEIGHBOURS)

    def of(mask: Tensor) -> dict[str, float | None]:
        return dict(as_before(real, few.y, fake[mask], samples.y[mask], balls))

    before = of(torch.ones(len(fake), dtype=torch.bool))
    intervals = interval.jackknife(of, before, len(fake))
    pairs = [(values[name], value) for name, value in before.items()]
    pairs += [(a, b) for name in before for a, b in zip(ranges[name], intervals[name], strict=True)]
    return max(abs(a - b) / max(abs(b), 1e-3) for a, b in pairs)
