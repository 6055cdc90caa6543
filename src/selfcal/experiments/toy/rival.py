"""One method on one seed of the 2-D toy: trained by the same stages and terms as anywhere, then held against the truth.

The unconditional score is never trained here: wherever one is needed (by DLSM, for conditional scores, for the
sampled paths) it is the mixture's exact one, so that every error seen is the classifier's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.files import make_folder, write_arrays, write_json
from selfcal.core.randomness import random_state
from selfcal.core.settings import Settings
from selfcal.data import moons
from selfcal.data.pool import Pool
from selfcal.diffusion.guidance import classifier_guided
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samplers import sample_euler
from selfcal.diffusion.scores import UNLABELED, Logits
from selfcal.methods import table as methods
from selfcal.methods.stage import Context
from selfcal.metrics.gradients import (
    LOWER_IS_BETTER,
    best_scale,
    gradient_field,
    paper_grid,
    scaled_errors,
)
from selfcal.training.stage import Batches, Diverged, finite_losses, new_learner, steps_of

TRUTH = "truth"
"""The exact posterior, measured like a method: its errors must be none."""

CLASSES = 2
PATHS = 200  # half of them of each class


@dataclass(frozen=True)
class Task:
    """A method and a seed, and where the result goes."""

    method: str
    seed: int
    labels: int
    settings: Settings  # with this method's own number of steps
    folder: Path

    @property
    def result(self) -> Path:
        return self.folder / f"{self.method}.json"

    @property
    def fields(self) -> Path:
        return self.folder / f"{self.method}.npz"

    @property
    def steps(self) -> int:
        return 0 if self.method == TRUTH else self.settings.classifier.steps


def draw(labels: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """(x, y, y_seen): i.i.d. points of this seed, of which the first `labels` show their class."""
    x, y = moons.mixture().sample(moons.TRAIN, random_state(seed, "toy/data", 0))
    y_seen = y.clone()
    y_seen[labels:] = UNLABELED
    if len(y_seen[:labels].unique()) < CLASSES:
        raise SelfcalError(f"seed {seed}: the {labels} labelled points are all of one class; raise --labels")
    return x, y, y_seen


def compete(task: Task) -> dict[str, Any]:
    """Train, measure, write the fields and then the result: a result file means that the task is done."""
    began, cpu_began = time.monotonic(), time.process_time()
    x, y, y_seen = draw(task.labels, task.seed)
    about: dict[str, Any] = {"method": task.method, "seed": task.seed, "steps": task.steps, "diverged": None}
    try:
        classifier, about["losses"] = learn(task, x, Pool(y_seen))
        numbers, arrays = measure(classifier, task)
        about |= numbers
    except Diverged as result:
        about["diverged"], arrays = result.report, {}
    about["seconds"] = round(time.monotonic() - began, 1)
    about["cpu_seconds"] = round(time.process_time() - cpu_began, 1)  # what it costs, however busy the machine is
    make_folder(task.folder, within=task.folder.parents[1])
    if task.method == TRUTH:
        arrays |= {"x": x.numpy(), "y": y.numpy(), "seen": y_seen.numpy(), "grid": paper_grid().numpy()}
    write_arrays(task.fields, arrays)
    write_json(task.result, about)
    return about


def learn(task: Task, x: Tensor, pool: Pool) -> tuple[Logits, dict[str, float]]:
    """The trained classifier with averaged weights, and its last losses; for TRUTH the exact log-joint."""
    mixture = moons.mixture()
    if task.method == TRUTH:
        return mixture.log_joint, {}
    (stage,) = (s for s in methods.find(task.method).stages(task.settings) if s.role == "classifier")
    context = Context(task.settings, pool.label_fraction, {"score": mixture.score})
    learner = new_learner(stage, task.settings, (2,), CLASSES, task.seed, Accelerator())
    objective, batches, losses = stage.objective(context), Batches(x, pool), dict[str, float]()
    with torch.random.fork_rng(devices=[]):
        for step in steps_of(stage, learner, objective, context, batches, task.seed):
            if step.number % task.settings.run.log_every == 0 or step.number == task.steps:
                losses = finite_losses(stage.name, step)
    return learner.average.module.cpu().eval().requires_grad_(False), losses


def measure(classifier: Logits, task: Task) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Numbers and pictures at σ_min: plain, with the best λ of each column, and with one λ for all of them."""
    noise = Noise(task.settings.noise.sigma_min, task.settings.noise.sigma_max)
    truth, score = truth_at(noise.sigma_min)
    estimate = gradient_field(classifier, paper_grid(), noise.sigma_min, CLASSES)
    if not torch.isfinite(estimate).all():
        raise Diverged("classifier", task.steps, {"gradient": float("nan")})
    errors = scaled_errors(estimate, truth, score)
    best = {column: best_scale(errors, column) for column in LOWER_IS_BETTER}
    one = best["gradient_mse"]
    paths, right = guided_paths(classifier, noise, task.seed)
    numbers = {
        "plain": errors[1.0],
        "best": {column: {"value": errors[scale][column], "scale": scale} for column, scale in best.items()},
        "one": {"scale": one, **errors[one]},
        "paths_right": right,
    }
    return numbers, {"field": estimate.float().numpy(), "paths": paths.numpy()}


@cache
def truth_at(sigma: float) -> tuple[Tensor, Tensor]:
    """On the paper's grid, the exact gradients of both classes (2, N, 2) and the exact unconditional score (N, 2)."""
    mixture, grid = moons.mixture(), paper_grid().double()
    score = mixture.score(grid, grid.new_full((len(grid),), sigma))
    return gradient_field(mixture.log_joint, grid, sigma, CLASSES), score


def guided_paths(classifier: Logits, noise: Noise, seed: int) -> tuple[Tensor, float]:
    """Where the probability flow takes the same noise under this guide at λ = 1, (steps + 1, PATHS, 2), classes
    alternating; and the share of ends that the exact posterior gives to the wanted class."""
    mixture, points = moons.mixture(), list[Tensor]()
    start = noise.sigma_max * torch.randn(PATHS, 2, generator=random_state(seed, "toy/paths", 0))
    y = torch.arange(PATHS) % CLASSES

    score = classifier_guided(mixture.score, classifier, y)

    def recording(x: Tensor, sigma: Tensor) -> Tensor:
        points.append(x)
        return score(x, sigma)

    end = sample_euler(recording, start, noise.karras(40))
    right = mixture.log_joint(end, torch.zeros(PATHS)).argmax(-1) == y
    return torch.stack([*points, end]), float(right.float().mean())
