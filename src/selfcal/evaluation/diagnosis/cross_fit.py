"""How good the guide would be on images it has no label of, where nobody knows any: guides of a part of the labels.

Each of a few short trainings does without a part of the labels, and is judged on them. They know fewer labels and had
fewer steps than the run's own guide and know far less; they tell whether the labels can be learned at all.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from selfcal.core.progress import bar
from selfcal.data.pool import Pool
from selfcal.diffusion.generator import Generator
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.guide import Subject, levels, opinions, quality_by_sigma
from selfcal.methods.stage import Context, Stage
from selfcal.training import processes
from selfcal.training.beginning import start_from_score
from selfcal.training.directory import RunDirectory
from selfcal.training.loop import Learner, Step
from selfcal.training.stage import Batches, new_learner, steps_of

FOLDS = 3
MOST_STEPS, FEWEST_STEPS = 1000, 500  # of each short training: wanted, and below which they tell nothing of the guide
WARM, MEASURED = 4, 20  # first steps, which are slower, and those that the pace is taken of
SEED = 1_000_000  # added to the run's, so that no short guide begins where the run's own did


def folds(labels: Tensor, count: int = FOLDS) -> Tensor:
    """The part (N,) to which each labelled example belongs, classes spread evenly; −1 where unlabelled, and of
    classes with a single label, which no guide could do without."""
    parts = torch.full_like(labels, -1)
    for c in labels[labels != UNLABELED].unique():
        members = (labels == c).nonzero()[:, 0]
        if len(members) > 1:
            parts[members] = torch.arange(len(members)) % count
    return parts


def cross_fitted(
    run: RunDirectory, subject: Subject, seconds: float, show_progress: bool = False
) -> tuple[list[dict[str, float]], int]:
    """Accuracy and calibration on labels left out, at growing noise, and the steps of each training; of no guide, or
    where no class has two labels, nothing."""
    stage = next((s for s in run.stages if s.role == "classifier" and not s.pseudo_labels), None)
    parts = folds(subject.labels)
    present = [part for part in range(FOLDS) if (parts == part).any()]
    if stage is None or len(present) < 2:
        return [], 0
    tables, sizes, steps, each = [], [], min(MOST_STEPS, run.settings.classifier.steps), seconds / len(present)
    with bar("guides of a part of the labels", len(present), show=show_progress) as tick:
        for part in present:
            out = parts == part
            labels = torch.where(out, torch.full_like(subject.labels, UNLABELED), subject.labels)
            guide, steps = short_guide(run, stage, subject, labels, steps, each)
            generator = replace(subject.generator, networks={**subject.generator.networks, "classifier": guide})
            tables.append(on_images(generator, subject.data.x[out], subject.labels[out]))
            sizes.append(int(out.sum()))
            tick(1, f"{steps} steps each")
    return averaged(tables, sizes, levels(subject.generator)), steps


def on_images(generator: Generator, x: Tensor, y: Tensor) -> list[dict[str, float]]:
    """Accuracy and calibration on these images, clean and at growing noise."""
    return quality_by_sigma(generator, x, y, opinions(generator, x))


def averaged(tables: list[list[dict[str, float]]], sizes: list[int], sigmas: list[float]) -> list[dict[str, float]]:
    """Over the parts, by how many labels each judged."""

    def mean(i: int, key: str) -> float:
        return sum(n * t[i][key] for n, t in zip(sizes, tables, strict=True)) / sum(sizes)

    return [{"sigma": s} | {k: mean(i, k) for k in ("accuracy", "ece", "confidence")} for i, s in enumerate(sigmas)]


def short_guide(
    run: RunDirectory, stage: Stage, subject: Subject, labels: Tensor, steps: int, seconds: float
) -> tuple[nn.Module, int]:
    """A guide as the run's, of these labels and so many steps, or as many as the time allows."""
    with torch.random.fork_rng(devices=[]):
        trial = begun(run, stage, subject, labels, steps)[1]
        times = [time.perf_counter() for _ in itertools.islice(trial, WARM + MEASURED)]
        pace = (times[-1] - times[min(WARM, len(times) - 1)]) / MEASURED
        steps = max(MEASURED, min(steps, int(seconds / max(pace, 1e-6))))
        learner, training = begun(run, stage, subject, labels, steps)
        for _ in training:
            pass
    guide: nn.Module = learner.average.module.eval().requires_grad_(False)
    return guide, steps


def begun(
    run: RunDirectory, stage: Stage, subject: Subject, labels: Tensor, steps: int
) -> tuple[Learner, Iterator[Step]]:
    """A new network and its training, step by step; nothing is written."""
    settings, pool = run.settings.with_steps({"classifier": steps}), Pool(labels)
    context = Context(settings, pool.label_fraction, dict(subject.generator.networks))
    seed = run.config["seed"] + SEED
    learner = new_learner(stage, settings, run.shape, len(run.classes), seed, processes.accelerator())
    if learner.settings.start != "scratch":
        start_from_score(learner.network, context.networks)
    objective = stage.objective(context)
    learner.memories = objective.memories
    return learner, steps_of(stage, learner, objective, context, Batches(subject.data.x, pool), seed)
