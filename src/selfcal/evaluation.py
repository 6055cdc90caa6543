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
from selfcal.checkpoint import write_json
from selfcal.data import UNLABELED, Dataset
from selfcal.errors import SelfcalError
from selfcal.metrics import features as extractors
from selfcal.metrics.features import Features
from selfcal.noise import Noise
from selfcal.run import Run
from selfcal.sampling import Samples

NEIGHBOURS = 5
MOST = 5000  # samples, unless the user asks for more
SELECTION = 10_000  # added to the seed of the samples on which λ is chosen
REPEATS = 5  # noise draws per test image, for guide accuracy at σ > σ_min


def evaluate(
    run: Run,
    scales: Sequence[float] | None = None,
    count: int | None = None,
    sampler: str | None = None,
    steps: int | None = None,
    guide: str | None = None,
    features: str = "auto",
    seed: int = 0,
    show_progress: bool = False,
    keep: Callable[[Samples], None] = lambda samples: None,
    **options: float,
) -> dict[str, Any]:
    """Samples at every scale, measured against the training images; writes and returns RUN/metrics.json.

    scales: the method's usual one if left out. keep: called with every reported set of samples.
    """
    if run.diverged:
        report: dict[str, Any] = {"results": [], "guide": [], "guide_split": None, "diverged": run.diverged}
        write_json(run.path / "metrics.json", report)
        return report
    scales = (run.method.scale,) if scales is None else scales
    if not scales or any(s < 0 for s in scales):
        raise SelfcalError(f"--scales {', '.join(map(str, scales))}: one or several numbers of at least 0 are needed")
    classes = len(run.classes)
    if count is None:
        count = max(2, min(MOST, len(run.data.x)) // classes) * classes
    if count < 2 * classes:
        raise SelfcalError(f"--count {count}: at least 2 images for each of {classes} classes are needed")
    judge = extractors.find(features, run.data)
    real = judge.embed(run.data.x)
    guide_quality = guide_by_sigma(run)
    draw = {"count": count, "sampler": sampler, "steps": steps, "guide": guide, **options}

    def measured(scale: float, sample_seed: int) -> tuple[Samples, dict[str, Any]]:
        samples = run.sample(scale=scale, seed=sample_seed, show_progress=show_progress, **draw)  # type: ignore[arg-type]
        return samples, sample_quality(run.data, real, samples, judge)

    chosen_on = {s: measured(s, seed + SELECTION)[1]["intra_fid"] for s in scales} if len(scales) > 1 else {}
    known = {s: v for s, v in chosen_on.items() if v is not None}
    best = min(known, key=lambda s: known[s]) if known else scales[0]
    results = []
    for scale in scales:
        samples, values = measured(scale, seed)
        keep(samples)
        results.append(
            {
                "method": run.method.name,
                "labels": run.config["labels"],
                "labelled": run.config["labelled"],
                "seed": run.config["seed"],
                "scale": scale,
                **values,
                "ece": guide_quality[0]["ece"] if guide_quality else None,
                "samples": count,
                "k": NEIGHBOURS,
                "features": judge.name,
                "features_sha256": judge.sha256,
                "reference": "train",
                "reference_examples": len(run.data.x),
                "sampler": samples.made["sampler"],
                "evaluations": samples.made["evaluations"],
                "sample_seed": seed,
                "selection_intra_fid": chosen_on.get(scale),
                "chosen": scale == best,
            }
        )
    report = {
        "results": results,
        "guide": guide_quality,
        "guide_split": guide_split(run)[2],
        "pseudo_labels": run.pseudo_labels,
        "diverged": None,
    }
    write_json(run.path / "metrics.json", report)
    return report


def sample_quality(data: Dataset, real: Tensor, samples: Samples, judge: Features) -> dict[str, float | None]:
    """The metrics of one set of samples against real features; None where the data cannot support one."""
    fake = judge.embed(samples.x)
    density, coverage = metrics.density_coverage(real, fake, NEIGHBOURS)
    known = data.y != UNLABELED
    sets = (real[known], data.y[known], fake, samples.y)

    def intra(metric: Callable[[Tensor, Tensor], float]) -> float | None:
        try:
            return metrics.per_class(metric, *sets)
        except SelfcalError:  # too few labelled images to know a class's distribution
            return None

    wanted = None if judge.classify is None else metrics.generation_accuracy(judge.classify(samples.x), samples.y)
    return {
        "intra_fid": intra(metrics.fid),
        "fid": metrics.fid(real, fake),
        "density": density,
        "coverage": coverage,
        "intra_density": intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[0]),
        "intra_coverage": intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[1]),
        "accuracy": wanted,
    }


def guide_split(run: Run) -> tuple[Tensor, Tensor, str]:
    """Images with known classes whose labels the guide never saw: the test split, else the hidden ones."""
    data = run.data
    if len(data.x_test):
        known = data.y_test != UNLABELED
        return data.x_test[known], data.y_test[known], "test"
    hidden = (run.pool.y == UNLABELED) & (data.y != UNLABELED)
    return data.x[hidden], data.y[hidden], "training images whose labels were hidden"


def guide_by_sigma(run: Run) -> list[dict[str, float]]:
    """Accuracy and calibration of the guide at σ_min (clean images) and at growing noise."""
    x, y, _ = guide_split(run)
    if "classifier" not in run.networks or not len(x):
        return []
    rng = torch.Generator().manual_seed(0)
    levels = Noise(run.noise.sigma_min, run.noise.sigma_max).geometric(9)[:-1].flip(0).tolist()
    table = []
    for i, sigma in enumerate(levels):
        repeats = 1 if i == 0 else REPEATS
        noisy = x.repeat(repeats, *[1] * (x.ndim - 1))
        if i > 0:  # the smallest level stands for clean images
            noisy = noisy + sigma * torch.randn(noisy.shape, generator=rng)
        probabilities, truth = run.predict_proba(noisy, sigma), y.repeat(repeats)
        table.append(
            {
                "sigma": sigma,
                "accuracy": metrics.generation_accuracy(probabilities, truth),
                "ece": metrics.expected_calibration_error(probabilities, truth),
                "confidence": float(probabilities.max(-1).values.double().mean()),
            }
        )
    return table
