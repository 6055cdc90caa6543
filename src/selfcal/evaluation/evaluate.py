"""Every metric of the paper for a generator, over one or several guidance scales.

λ is chosen on one set of samples and reported on another, drawn with a different seed, so that the
number of the chosen λ is not the luckiest of several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from selfcal.core.comparable import ENOUGH
from selfcal.core.errors import SelfcalError
from selfcal.core.progress import say
from selfcal.core.team import Team
from selfcal.diffusion.generator import Sampling, spread
from selfcal.diffusion.guidance import GUIDES
from selfcal.diffusion.samples import Samples
from selfcal.evaluation import choice, effort
from selfcal.evaluation import features as extractors
from selfcal.evaluation.features import Features
from selfcal.evaluation.guide import (
    Subject,
    clean_opinions,
    ece_interval,
    guide_by_sigma,
    guide_split,
    learned_by_sigma,
)
from selfcal.evaluation.label_free import guides_classes
from selfcal.evaluation.reference import NEIGHBOURS, Reference, has_class_references
from selfcal.metrics import interval

ALONE = ("unconditional", "classifier-only-unconditional", "classifier-only")  # rows of guidance.GUIDES
SELECTION = 10_000  # added to the seed of the samples on which λ is chosen


@dataclass(frozen=True)
class Asked:
    """The words of `selfcal evaluate`; what is None is left to the subject and to the time there is."""

    scales: Sequence[float] | str | None = None  # "auto": a grid to choose from
    count: int | None = None
    how: Sampling = field(default_factory=Sampling)
    features: str = "auto"
    intervals: bool = True
    curve: bool = True  # report every scale, or the chosen one
    seed: int = 0
    alone: bool = False
    label_free: bool = True  # also choose λ without class references
    minutes: float = effort.MINUTES
    grid: Sequence[float] = ()  # what "auto" tries


def evaluate(
    subject: Subject,
    asked: Asked,
    show_progress: bool = False,
    keep: Callable[[Samples], None] = lambda samples: None,
) -> dict[str, Any]:
    """The report; see `Run.evaluate`, which writes it."""
    scales, is_automatic = wanted_scales(asked, subject)
    reports_all = asked.curve and not is_automatic
    plan = planned(subject, asked, scales, len(scales) if reports_all else 1, is_automatic)
    team = subject.generator.team
    judge = extractors.find(asked.features, subject.data, show_progress, team)
    reference = Reference(subject.data, judge, show_progress, team)
    clean = clean_opinions(subject, show_progress)
    guide, learned = guide_by_sigma(subject, show_progress, clean), learned_by_sigma(subject, show_progress)
    about = provenance(subject, judge, reference, plan.count) | of_the_guide(guide, learned)
    if show_progress and plan.seconds > 2:  # now: what came before had times of its own, and some is in the cache
        say(plan.in_words(scales, len(scales) if reports_all else 1))

    def draw(count: int, seed: int, **changes: Any) -> Samples:
        y, how = spread(range(len(subject.data.classes)), count), replace(asked.how, **changes)
        return subject.generator.sample(y, how, seed, show_progress)

    few, other = plan.for_choosing, asked.seed + SELECTION
    trials = tried(scales, lambda scale: draw(few, other, scale=scale), reference, subject, asked)
    best = choice.chosen(scales, trials)
    calibration = ece_interval(subject, clean) if guide and asked.intervals else {}
    reported = list(scales) if reports_all else [fallback(best, scales, subject)]

    def drawn(scale: float) -> Samples:
        samples = draw(plan.count, asked.seed, scale=scale)
        keep(samples)
        return samples

    found = in_turn(reported, drawn, lambda s: measured(s, reference, calibration, asked.intervals), team)
    about["sample_seed"] = asked.seed
    results = [about | {"scale": s} | found[s] | of_the_choice(s, best, trials.get(s, {})) for s in reported]
    return {
        "results": results,
        "chosen": best.in_json(results, selection := [{"scale": s, **values} for s, values in trials.items()]),
        "selection": selection,
        "guide": guide,
        "guide_split": guide_split(subject)[2] if guide else None,
        "learned": learned,
        "alone": measured_alone(subject, reference, partial(draw, plan.count, asked.seed), keep) if asked.alone else [],
    }


def measured(
    samples: Samples, reference: Reference, calibration: dict[str, list[float] | None], intervals: bool
) -> dict[str, Any]:
    """The numbers of one set of samples, and how it was drawn."""
    values, ranges = reference.measure(samples, intervals)
    return {
        "agreement": None,  # unless measured
        **values,
        "by_class": reference.by_class(samples),
        "intervals": None if ranges is None else ranges | calibration,
        "interval_method": interval.METHOD if intervals else None,
        "sampler": samples.made["sampler"],
        "evaluations": samples.made["evaluations"],
    }


def of_the_choice(scale: float, best: choice.Choice, trial: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "selection_intra_fid": trial.get("intra_fid"),
        "selection_label_free_fid": trial.get("label_free_fid"),
        "chosen": scale == best.scale,
    }


def tried(
    scales: Sequence[float], draw: Callable[[float], Samples], reference: Reference, subject: Subject, asked: Asked
) -> dict[float, dict[str, Any]]:
    """λ -> what was measured on the samples to choose by; nothing where there is nothing to choose."""
    if len(scales) < 2:
        return {}
    without_labels = guides_classes(subject, reference, reference.show_progress) if asked.label_free else None

    def measure(samples: Samples) -> dict[str, Any]:
        free = None if without_labels is None else without_labels(samples)
        return dict(reference.measure(samples)[0]) | {"label_free_fid": free}

    return in_turn(scales, draw, measure, subject.generator.team)


def in_turn(
    scales: Sequence[float], draw: Callable[[float], Samples], measure: Callable[[Samples], dict[str, Any]], team: Team
) -> dict[float, dict[str, Any]]:
    """λ -> what was measured on its samples. Of several processes all draw, then each measures some of the sets."""
    own = team.mine([1.0] * len(scales))
    if team.world == 1:
        return {scale: measure(draw(scale)) for scale in scales}
    drawn = {}
    for i, scale in enumerate(scales):
        samples = draw(scale)
        if i in own:
            drawn[i] = samples
    rows = team.merged({i: measure(samples) for i, samples in drawn.items()})
    return {scale: rows[i] for i, scale in enumerate(scales)}


def fallback(best: choice.Choice, scales: Sequence[float], subject: Subject) -> float:
    """The λ that is reported alone: the chosen one, else the method's usual one, else the first asked for."""
    usual = subject.generator.usual.scale or 0.0
    return best.scale if best.scale is not None else usual if usual in scales else scales[0]


def measured_alone(
    subject: Subject, reference: Reference, draw: Callable[..., Samples], keep: Callable[[Samples], None]
) -> list[dict[str, Any]]:
    """Each network as a generator by itself, unguided: the paper's appendix on classifiers read as energies."""
    rows = []
    for guide in ALONE:
        if not set(GUIDES[guide].needs) <= set(subject.generator.networks):
            continue
        samples = draw(guide=guide)
        row: dict[str, Any] = {"guide": guide, "diverged": not bool(samples.x.isfinite().all())}
        if not row["diverged"]:
            keep(samples)
            values = reference.measure(samples)[0]
            of_classes = guide == "classifier-only"  # the others know of none
            row |= {k: v for k, v in values.items() if of_classes or k in ("fid", "kid", "inception_score")}
        rows.append(row)
    return rows


def wanted_scales(asked: Asked, subject: Subject) -> tuple[Sequence[float], bool]:
    """As asked for; the method's usual one if left out. "auto" is the grid, if there is something to choose by."""
    scales, usual = asked.scales, (subject.generator.usual.scale or 0.0,)
    if isinstance(scales, str):
        if scales != "auto":
            raise SelfcalError(f"--scales {scales!r} is neither numbers nor auto")
        can_choose = has_class_references(subject.data) or "classifier" in subject.generator.networks
        return (asked.grid if can_choose and asked.how.guide is None and asked.grid else usual), True
    if scales is None:
        return usual, False
    if not scales or not all(0 <= s < float("inf") for s in scales):
        raise SelfcalError(f"--scales {', '.join(map(str, scales))}: one or several numbers of at least 0 are needed")
    return scales, False


def planned(subject: Subject, asked: Asked, scales: Sequence[float], reported: int, sparing: bool) -> effort.Effort:
    how = replace(asked.how, scale=max(scales))
    effort.how_many(asked.count, subject.data)  # refused before anything is measured
    team = subject.generator.team
    seconds = team.from_main(lambda: effort.seconds_per_sample(subject.generator, how)) / team.world
    tried = len(scales) if len(scales) > 1 else 0
    return effort.planned(asked.count, subject.data, seconds, tried, reported, asked.minutes, sparing)


def of_the_guide(guide: list[dict[str, float]], learned: list[dict[str, float | None]]) -> dict[str, Any]:
    return {
        "ece": guide[0]["ece"] if guide else None,
        "guide_accuracy": guide[0]["accuracy"] if guide else None,
        "sc_fraction": sum(row["guide"] or 0.0 for row in learned) / len(learned) if learned else None,
    }


def provenance(subject: Subject, judge: Features, reference: Reference, count: int) -> dict[str, Any]:
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
        "reference_per_class": reference.per_class,
        "reference_of_classes": reference.class_split,
        "kid_pairs": reference.kid_pairs,
    }
