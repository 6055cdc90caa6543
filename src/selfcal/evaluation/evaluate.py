"""Every metric of the paper for a generator, over one or several guidance scales.

λ is chosen on one set of samples and reported on another, drawn with a different seed, so that the
number of the chosen λ is not the luckiest of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.data.dataset import Dataset
from selfcal.diffusion.generator import Sampling, spread
from selfcal.diffusion.guidance import GUIDES
from selfcal.diffusion.samples import Samples
from selfcal.evaluation import features as extractors
from selfcal.evaluation.features import Features
from selfcal.evaluation.guide import Subject, ece_interval, guide_by_sigma, guide_split, learned_by_sigma
from selfcal.evaluation.reference import NEIGHBOURS, Reference
from selfcal.metrics import interval
from selfcal.metrics.comparable import ENOUGH

MOST = 5000  # samples, unless the user asks for more
ALONE = ("unconditional", "classifier-only-unconditional", "classifier-only")  # rows of guidance.GUIDES
SELECTION = 10_000  # added to the seed of the samples on which λ is chosen


def evaluate(
    subject: Subject,
    *,
    scales: Sequence[float] | None = None,
    count: int | None = None,
    how: Sampling | None = None,
    features: str = "auto",
    intervals: bool = True,
    curve: bool = True,
    seed: int = 0,
    show_progress: bool = False,
    alone: bool = False,
    keep: Callable[[Samples], None] = lambda samples: None,
) -> dict[str, Any]:
    """The report; see `Run.evaluate`, which writes it."""
    scales = checked_scales(scales, subject)
    count = how_many(count, subject.data)
    judge = extractors.find(features, subject.data, show_progress)
    reference = Reference(subject.data, judge, show_progress)
    guide = guide_by_sigma(subject)
    calibration = ece_interval(subject) if guide and intervals else {}
    learned = learned_by_sigma(subject)
    y = spread(range(len(subject.data.classes)), count)

    def draw(scale: float, sample_seed: int) -> Samples:
        return subject.generator.sample(y, replace(how or Sampling(), scale=scale), sample_seed, show_progress)

    def draw_alone(guide: str) -> Samples:
        return subject.generator.sample(y, replace(how or Sampling(), guide=guide), seed, show_progress)

    trials = {s: reference.measure(draw(s, seed + SELECTION))[0] for s in (scales if len(scales) > 1 else ())}
    chosen_on = {s: values["intra_fid"] for s, values in trials.items() if values["intra_fid"] is not None}
    best = min(chosen_on, key=lambda s: chosen_on[s]) if chosen_on else scales[0]
    results = []
    for scale in scales if curve else (best,):
        samples = draw(scale, seed)
        keep(samples)
        values, ranges = reference.measure(samples, intervals)
        results.append(
            {
                **provenance(subject, judge, count),
                "scale": scale,
                **values,
                "ece": guide[0]["ece"] if guide else None,
                "guide_accuracy": guide[0]["accuracy"] if guide else None,
                "sc_fraction": sum(row["guide"] or 0.0 for row in learned) / len(learned) if learned else None,
                "intervals": None if ranges is None else ranges | calibration,
                "interval_method": interval.METHOD if intervals else None,
                "sampler": samples.made["sampler"],
                "evaluations": samples.made["evaluations"],
                "sample_seed": seed,
                "selection_intra_fid": chosen_on.get(scale),
                "chosen": scale == best,
            }
        )
    return {
        "results": results,
        "selection": [{"scale": s, **values} for s, values in trials.items()],
        "guide": guide,
        "guide_split": guide_split(subject)[2] if guide else None,
        "learned": learned,
        "alone": measured_alone(subject, reference, draw_alone, keep) if alone else [],
    }


def measured_alone(
    subject: Subject, reference: Reference, draw: Callable[[str], Samples], keep: Callable[[Samples], None]
) -> list[dict[str, Any]]:
    """Each network as a generator by itself, unguided: the paper's appendix on classifiers read as energies."""
    rows = []
    for guide in ALONE:
        if not set(GUIDES[guide].needs) <= set(subject.generator.networks):
            continue
        samples = draw(guide)
        row: dict[str, Any] = {"guide": guide, "diverged": not bool(samples.x.isfinite().all())}
        if not row["diverged"]:
            keep(samples)
            values = reference.measure(samples)[0]
            of_classes = guide == "classifier-only"  # the others know of none
            row |= {k: v for k, v in values.items() if of_classes or k in ("fid", "kid", "inception_score")}
        rows.append(row)
    return rows


def checked_scales(scales: Sequence[float] | None, subject: Subject) -> Sequence[float]:
    """As asked for; the method's usual one if left out."""
    if scales is None:
        return (subject.generator.usual.scale or 0.0,)
    if not scales or not all(0 <= s < float("inf") for s in scales):
        raise SelfcalError(f"--scales {', '.join(map(str, scales))}: one or several numbers of at least 0 are needed")
    return scales


def how_many(count: int | None, data: Dataset) -> int:
    """Samples per guidance scale: as asked for, or about as many as there are training images."""
    classes = len(data.classes)
    if count is None:
        return max(2, min(MOST, len(data.x)) // classes) * classes
    if count < 2 * classes:
        raise SelfcalError(f"--count {count}: at least 2 images for each of {classes} classes are needed")
    return count


def provenance(subject: Subject, judge: Features, count: int) -> dict[str, Any]:
    """What a number must say of itself to be compared."""
    return {
        **subject.about,
        "samples": count,
        "biased": count < ENOUGH,
        "k": NEIGHBOURS,
        "features": judge.name,
        "features_sha256": judge.sha256,
        "distance": judge.distance,
        "reference": "train",
        "reference_examples": len(subject.data.x),
        "reference_sha256": subject.data.sha256,
        "reference_per_class": subject.data.fewest_per_class,
    }
