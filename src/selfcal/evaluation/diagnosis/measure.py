"""Everything the doctor measures of a run, in the order of its questions; words come later (findings.py)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfcal.core.progress import say
from selfcal.data.pixels import Examples, some
from selfcal.diffusion.generator import Sampling, spread
from selfcal.diffusion.samples import Samples
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation import choice
from selfcal.evaluation.diagnosis.copies import copies
from selfcal.evaluation.diagnosis.cross_fit import FEWEST_STEPS, cross_fitted, on_images
from selfcal.evaluation.diagnosis.left_out import LeftOut, left_out
from selfcal.evaluation.diagnosis.pull import pull_by_sigma
from selfcal.evaluation.diagnosis.training_log import training_log
from selfcal.evaluation.effort import seconds_per_sample
from selfcal.evaluation.guide import (
    Subject,
    draws_and_images,
    evenly,
    guide_by_sigma,
    guide_split,
    learned_by_sigma,
)
from selfcal.evaluation.history import recommended
from selfcal.evaluation.label_free import guides_classes
from selfcal.training.directory import RunDirectory

ENOUGH = 20  # images of known class that were never seen, from which accuracy is told of them
HELD_OUT, STAND_IN, CROSS_FIT = "held-out", "stand-in", "cross-fit"  # by what the guide is judged
TRUSTED_STAND_IN = 0.8  # share of labels that the others confirm, from which they stand in for unknown ones
SAMPLES = (50, 500)  # drawn at the usual λ: at least, at most
CURVE = 300  # samples of each λ, at most
SHOWN = 10  # pictures of samples beside their nearest labelled image
MOST_SUSPECTS = 60  # in the grid


@dataclass(frozen=True)
class Examination:
    """A run to be examined, and how long it may take."""

    run: RunDirectory
    subject: Subject
    minutes: float
    seed: int = 0
    show_progress: bool = False

    @property
    def has_guide(self) -> bool:
        return "classifier" in self.subject.generator.networks

    def seconds(self, share: float) -> float:
        return 60 * self.minutes * share

    def note(self, words: str) -> None:
        if self.show_progress:
            say(words)


@dataclass(frozen=True)
class Measured:
    """Numbers (JSON), and pictures to look at."""

    numbers: dict[str, Any]
    pictures: dict[str, np.ndarray] = field(default_factory=dict)


def measured(e: Examination) -> Measured:
    """All of it; a run without a guide has no answer to some questions."""
    e.note("are labels wrong, and does the guide know? each label left out in turn; accuracy over the noise")
    spread = left_out(e.subject.data, e.subject.labels, e.show_progress)
    numbers: dict[str, Any] = {"training": training_log(e.run).in_json(), "labels": of_labels(e)}
    numbers["knows"] = knows(e, spread)
    e.note("does calibration act, and which way does it pull?")
    numbers["acts"] = learned_by_sigma(e.subject, e.show_progress)
    scale, by = scale_of(e)
    numbers["pulls"] = pulls(e, scale)
    e.note("is it memorising? samples beside labelled images")
    samples = drawn(e, scale, samples_within(e, e.seconds(0.25), SAMPLES))
    found = copies(samples, e.subject.data, e.subject.labels)
    numbers["copies"] = {"samples": len(samples), "scale": scale, **found.in_json()}
    suspects, pictures = suspected(e, spread)
    numbers["suspects"] = suspects
    numbers["scale"] = which_scale(e, scale, by)
    return Measured(numbers, pictures | beside(samples, found.nearest, e.subject.data.x))


def of_labels(e: Examination) -> dict[str, Any]:
    labels = e.subject.labels
    counts = torch.bincount(labels[labels != UNLABELED], minlength=len(e.run.classes))
    return {"labelled": int(counts.sum()), "examples": len(labels), "fewest": int(counts.min())}


def knows(e: Examination, spread: LeftOut) -> dict[str, Any]:
    """On images whose labels the guide never saw. Where nobody knows any, on unlabelled ones whose class the labels
    make clear, if these are to be trusted; else by guides of a part of the labels. And on the labelled ones."""
    nothing: dict[str, Any] = {"by": None, "on": None, "images": 0, "by_sigma": [], "labelled": []}
    if not e.has_guide:
        return nothing
    generator, data, labels = e.subject.generator, e.subject.data, e.subject.labels
    shown = labels != UNLABELED
    found = nothing | {"labelled": on_images(generator, data.x[shown], labels[shown])}
    x, _, split = guide_split(e.subject)
    if len(x) >= ENOUGH:
        words = "of the test split" if split == "test" else split
        return found | {"by": HELD_OUT, "on": words, "images": len(x), "by_sigma": guide_by_sigma(e.subject)}
    places, classes = spread.clear()
    if len(places) >= ENOUGH and (spread.agreement or 0.0) >= TRUSTED_STAND_IN:
        table = on_images(generator, data.x[places], classes)
        words = "unlabelled, of the class that the labels around them make clear"
        return found | {"by": STAND_IN, "on": words, "images": len(places), "by_sigma": table}
    table, steps = cross_fitted(e.run, e.subject, e.seconds(0.4), e.show_progress)
    if not table:
        return found
    by = CROSS_FIT if steps >= min(FEWEST_STEPS, e.run.settings.classifier.steps) else None
    words = f"left out of short trainings of {steps:,} steps"
    return found | {"by": by, "on": words, "images": int(shown.sum()), "by_sigma": table}


def pulls(e: Examination, scale: float) -> list[dict[str, float]]:
    """On images of known class that were never seen, else on the labelled ones, which flatters."""
    if not {"score", "classifier"} <= set(e.subject.generator.networks):
        return []
    x, y, _ = guide_split(e.subject)
    if len(x) < ENOUGH:
        shown = e.subject.labels != UNLABELED
        x, y = e.subject.data.x[shown], e.subject.labels[shown]
    most = draws_and_images(e.subject.data.shape)[1]
    return pull_by_sigma(e.subject.generator, evenly(x, most), evenly(y, most), scale)


def scale_of(e: Examination) -> tuple[float, str | None]:
    """λ as `selfcal sample` would take it: the evaluation's, else the method's usual one."""
    return recommended(e.run.metrics) or (e.run.method.scale, None)


def samples_within(e: Examination, seconds: float, bounds: tuple[int, int]) -> int:
    each = seconds_per_sample(e.subject.generator, Sampling())
    least, most = max(bounds[0], 2 * len(e.run.classes)), max(bounds[1], 2 * len(e.run.classes))
    return int(min(most, max(least, seconds / max(each, 1e-9))))


def drawn(e: Examination, scale: float, count: int) -> Samples:
    y = spread(range(len(e.run.classes)), count)
    return e.subject.generator.sample(y, Sampling(scale), e.seed, e.show_progress)


def suspected(e: Examination, found: LeftOut) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Labels that the others contradict, by name, and their images."""
    data = e.subject.data
    best_class = found.probabilities.scatter(1, found.given[:, None], -1.0).argmax(-1)
    rows: list[dict[str, Any]] = [
        {
            "name": data.names[int(found.places[i])],
            "position": int(found.places[i]),
            "label": data.classes[int(found.given[i])],
            "instead": data.classes[int(best_class[i])],
            "odds": min(float(found.odds[i]), 1e6),
        }
        for i in found.suspects.tolist()
    ]
    about = {"judged": int(found.judged.sum()), "agreement": found.agreement, "of": len(found.given), "found": rows}
    places = [row["position"] for row in rows[:MOST_SUSPECTS]]
    return about, {"suspects": data.x[places].numpy()} if places and data.is_image else {}


def which_scale(e: Examination, scale: float, by: str | None) -> dict[str, Any]:
    """The λ that an evaluation chose; else the curve over λ without labels, where a guide can label the pile."""
    if by is not None:
        return {"scale": scale, "by": by, "curve": [], "grid": []}
    grid = e.run.method.grids["wide"]
    side = guides_classes(e.subject, None, e.show_progress) if e.has_guide and len(grid) > 1 else None
    if side is None:
        return {"scale": None, "by": None, "curve": [], "grid": list(grid)}
    e.note("which λ? the curve without labels")
    count = samples_within(e, e.seconds(0.25) / len(grid), (50, CURVE))
    rows = {s: {"scale": s, "label_free_fid": side(drawn(e, s, count))} for s in grid}
    curve, chosen = list(rows.values()), choice.best(rows, "label_free_fid", choice.TIED)  # as `evaluate` does
    return {"scale": chosen, "by": "label-free curve" if chosen else None, "curve": curve, "samples": count,
            "grid": list(grid)}  # fmt: skip


def beside(samples: Samples, nearest: Tensor, x: Examples) -> dict[str, np.ndarray]:
    """Samples, one of each class first, and each one's nearest labelled image: (2, SHOWN, *)."""
    if x.ndim != 4:
        return {}
    first = {int(c): int((samples.y == c).nonzero()[0, 0]) for c in samples.y.unique()}
    places = [*first.values(), *(i for i in range(len(samples.y)) if i not in first.values())][:SHOWN]
    return {"nearest": torch.stack([samples.x[places], x[nearest[places]]]).numpy()}


def without_held_out(subject: Subject) -> Subject:
    """As if nobody knew any class but those that the method was shown."""
    data = subject.data
    return replace(
        subject, data=replace(data, y=subject.labels, x_test=some(data.x_test, slice(0)), y_test=data.y_test[:0])
    )
