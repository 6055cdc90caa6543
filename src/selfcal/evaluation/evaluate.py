"""`selfcal evaluate`: every metric of the paper for a run, over one or several guidance scales.

λ is chosen on one set of samples and reported on another, drawn with a different seed, so that the
number of the chosen λ is not the luckiest of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from selfcal import metrics
from selfcal.core.errors import SelfcalError
from selfcal.data import UNLABELED, Dataset
from selfcal.diffusion.generator import Samples
from selfcal.diffusion.noise import Noise
from selfcal.evaluation import features as extractors
from selfcal.evaluation.features import Features
from selfcal.metrics import interval
from selfcal.metrics.comparable import ENOUGH
from selfcal.metrics.prdc import Balls
from selfcal.run import Run
from selfcal.training.checkpoint import write_json

NEIGHBOURS = 5
LEAST = 20  # real images of known class, in every class, below which no per-class metric is reported
MOST = 5000  # samples, unless the user asks for more
SELECTION = 10_000  # added to the seed of the samples on which λ is chosen
REPEATS = 5  # noise draws per test image, for guide accuracy at σ > σ_min
DRAWS = 5000  # but no more in all: large test sets are thinned there


def evaluate(
    run: Run,
    scales: Sequence[float] | None = None,
    count: int | None = None,
    sampler: str | None = None,
    steps: int | None = None,
    guide: str | None = None,
    features: str = "auto",
    intervals: bool = True,
    curve: bool = True,
    seed: int = 0,
    show_progress: bool = False,
    keep: Callable[[Samples], None] = lambda samples: None,
    **options: float,
) -> dict[str, Any]:
    """Samples at every scale, measured against the training images; writes and returns RUN/metrics.json.

    scales: the method's usual one if left out; of several the best is chosen on samples of their own.
    intervals: 95 % intervals for every number (ten more measurements). curve: report every scale, or
    only the chosen one. keep: called with every reported set of samples.
    """
    if run.diverged:
        report: dict[str, Any] = {
            "results": [],
            "selection": [],
            "guide": [],
            "guide_split": None,
            "diverged": run.diverged,
        }
        write_json(run.path / "metrics.json", report)
        return report
    scales = (run.method.scale,) if scales is None else scales
    if not scales or not all(0 <= s < float("inf") for s in scales):
        raise SelfcalError(f"--scales {', '.join(map(str, scales))}: one or several numbers of at least 0 are needed")
    count = how_many(count, run.data)
    judge = extractors.find(features, run.data, show_progress)
    reference = Reference(run.data, judge, show_progress)
    guide_quality = guide_by_sigma(run)
    calibration = ece_interval(run) if guide_quality and intervals else {}
    about = provenance(run, judge, count)
    draw = {"count": count, "sampler": sampler, "steps": steps, "guide": guide, **options}

    def drawn(scale: float, sample_seed: int) -> Samples:
        return run.sample(scale=scale, seed=sample_seed, show_progress=show_progress, **draw)  # type: ignore[arg-type]

    trials = {s: reference.measure(drawn(s, seed + SELECTION))[0] for s in (scales if len(scales) > 1 else ())}
    chosen_on = {s: values["intra_fid"] for s, values in trials.items() if values["intra_fid"] is not None}
    best = min(chosen_on, key=lambda s: chosen_on[s]) if chosen_on else scales[0]
    results = []
    for scale in scales if curve else (best,):
        samples = drawn(scale, seed)
        keep(samples)
        values, ranges = reference.measure(samples, intervals)
        results.append(
            {
                **about,
                "scale": scale,
                **values,
                "ece": guide_quality[0]["ece"] if guide_quality else None,
                "intervals": None if ranges is None else ranges | calibration,
                "interval_method": interval.METHOD if intervals else None,
                "sampler": samples.made["sampler"],
                "evaluations": samples.made["evaluations"],
                "sample_seed": seed,
                "selection_intra_fid": chosen_on.get(scale),
                "chosen": scale == best,
            }
        )
    report = {
        "results": results,
        "selection": [{"scale": s, **values} for s, values in trials.items()],
        "guide": guide_quality,
        "guide_split": guide_split(run)[2] if guide_quality else None,
        "pseudo_labels": run.pseudo_labels,
        "diverged": None,
    }
    write_json(run.path / "metrics.json", report)
    return report


def how_many(count: int | None, data: Dataset) -> int:
    """Samples per guidance scale: as asked for, or about as many as there are training images."""
    classes = len(data.classes)
    if count is None:
        return max(2, min(MOST, len(data.x)) // classes) * classes
    if count < 2 * classes:
        raise SelfcalError(f"--count {count}: at least 2 images for each of {classes} classes are needed")
    return count


def provenance(run: Run, judge: Features, count: int) -> dict[str, Any]:
    """What a number must say of itself to be compared."""
    return {
        "method": run.method.name,
        **{key: run.config[key] for key in ("labels", "labelled", "seed")},
        "samples": count,
        "biased": count < ENOUGH,
        "k": NEIGHBOURS,
        "features": judge.name,
        "features_sha256": judge.sha256,
        "distance": judge.distance,
        "reference": "train",
        "reference_examples": len(run.data.x),
        "reference_sha256": run.data.sha256,
        "reference_per_class": run.data.fewest_per_class,
    }


class Reference:
    """The real images' features, computed once, against which sets of samples are measured."""

    def __init__(self, data: Dataset, judge: Features, show_progress: bool = False) -> None:
        self.judge = judge
        self.real = extractors.reference(judge, data, show_progress)
        self.balls = Balls(self.real, NEIGHBOURS) if len(self.real) > NEIGHBOURS else None
        known = data.y != UNLABELED
        self.known, self.y = self.real[known], data.y[known]
        self.classes_are_known = data.fewest_per_class >= LEAST

    def intra_fid(self, samples: Samples) -> float | None:
        return self._intra(metrics.fid, self.judge.embed(samples.x), samples.y)

    def measure(
        self, samples: Samples, intervals: bool = False
    ) -> tuple[dict[str, float | None], dict[str, list[float] | None] | None]:
        """The metrics of one set of samples, and their 95 % intervals; None where the data cannot support one."""
        fake = self.judge.embed(samples.x)
        probabilities = None if self.judge.classify is None else self.judge.classify(samples.x)
        recognised = probabilities if self.judge.recognise is None else self.judge.recognise(samples.x)

        def of(chosen: Tensor) -> dict[str, float | None]:
            wanted = None if probabilities is None else probabilities[chosen]
            scored = None if recognised is None else recognised[chosen]
            return self._values(fake[chosen], samples.y[chosen], wanted, scored)

        values = of(torch.ones(len(fake), dtype=torch.bool))
        return values, interval.jackknife(of, values, len(fake)) if intervals else None

    def _values(
        self, fake: Tensor, y: Tensor, probabilities: Tensor | None, recognised: Tensor | None
    ) -> dict[str, float | None]:
        inside: tuple[float | None, float | None] = (None, None)
        if self.balls is not None:
            inside = self.balls.density_coverage(fake)
        return {
            "intra_fid": self._intra(metrics.fid, fake, y),
            "fid": metrics.fid(self.real, fake),
            "kid": metrics.kid(self.real, fake),
            "density": inside[0],
            "coverage": inside[1],
            "intra_density": self._intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[0], fake, y),
            "intra_coverage": self._intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[1], fake, y),
            "inception_score": None if recognised is None else metrics.inception_score(recognised, splits=1)[0],
            "accuracy": None if probabilities is None else metrics.generation_accuracy(probabilities, y),
        }

    def _intra(self, metric: Callable[[Tensor, Tensor], float], fake: Tensor, y: Tensor) -> float | None:
        """None where too few images are known to be of a class to tell how it is distributed."""
        return metrics.per_class(metric, self.known, self.y, fake, y) if self.classes_are_known else None


def guide_split(run: Run) -> tuple[Tensor, Tensor, str]:
    """Images with known classes whose labels the guide never saw: the test split, else the hidden ones."""
    data = run.data
    if len(data.x_test):
        known = data.y_test != UNLABELED
        return data.x_test[known], data.y_test[known], "test"
    hidden = (run.pool.y == UNLABELED) & (data.y != UNLABELED)
    return data.x[hidden], data.y[hidden], "training images whose labels were hidden"


def ece_interval(run: Run) -> dict[str, list[float] | None]:
    """The interval of the guide's calibration error on clean images, leaving out a tenth of the images in turn."""
    x, y, _ = guide_split(run)
    probabilities = run.predict_proba(x)

    def of(chosen: Tensor) -> dict[str, float | None]:
        return {"ece": metrics.expected_calibration_error(probabilities[chosen], y[chosen])}

    if len(x) < 2 * interval.GROUPS:
        return {"ece": None}
    return interval.jackknife(of, of(torch.ones(len(x), dtype=torch.bool)), len(x))


def guide_by_sigma(run: Run) -> list[dict[str, float]]:
    """Accuracy and calibration of the guide at σ_min (clean images) and at growing noise."""
    x, y, _ = guide_split(run)
    if "classifier" not in run.networks or not len(x):
        return []
    rng = torch.Generator().manual_seed(0)
    levels = Noise(run.noise.sigma_min, run.noise.sigma_max).geometric(9)[:-1].flip(0).tolist()
    table = []
    for i, sigma in enumerate(levels):
        repeats = 1 if i == 0 else max(1, min(REPEATS, DRAWS // len(x)))
        thinned = slice(None, None, 1 if i == 0 else -(-len(x) // DRAWS))
        noisy = x[thinned].repeat(repeats, *[1] * (x.ndim - 1))
        if i > 0:  # the smallest level stands for clean images
            noisy = noisy + sigma * torch.randn(noisy.shape, generator=rng)
        probabilities, truth = run.predict_proba(noisy, sigma), y[thinned].repeat(repeats)
        table.append(
            {
                "sigma": sigma,
                "accuracy": metrics.generation_accuracy(probabilities, truth),
                "ece": metrics.expected_calibration_error(probabilities, truth),
                "confidence": float(probabilities.max(-1).values.double().mean()),
            }
        )
    return table
