"""`selfcal demo`: classifier guidance with and without self-calibration, on digits with 2 % labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfcal.core.files import check_inside, write_arrays, write_json
from selfcal.data.sources import load_data
from selfcal.diffusion.samples import Samples
from selfcal.evaluation import features
from selfcal.evaluation.effort import how_many
from selfcal.experiments.demo.page import write_page
from selfcal.experiments.workers import one_thread, side_by_side
from selfcal.methods.table import CLASSIFIER_GRIDS
from selfcal.report.pictures import first_of_each_class
from selfcal.run import Run, train
from selfcal.training.lock import check_claim

DATA, LABELS = "builtin:digits", 0.02
RIVALS = ("cg", "cg-sc-all")
COUNT = 1800


@dataclass(frozen=True)
class Plan:
    """What both rivals are given."""

    out: Path
    seed: int
    steps: int | None
    scales: tuple[float, ...]
    count: int
    show_progress: bool

    def train(self, method: str, until: str | None = None, score: Path | None = None) -> Run:
        folder, show = self.out / "runs" / method, self.show_progress
        check_inside(folder, within=self.out)
        return train(
            DATA, method, LABELS, folder, seed=self.seed, steps=self.steps, score=score, until=until, show_progress=show
        )


def demo(
    out: str | Path,
    seed: int = 0,
    steps: int | None = None,
    scales: Sequence[float] = CLASSIFIER_GRIDS["paper"],
    count: int = COUNT,
    show_progress: bool = False,
) -> Path:
    """Train, sample and measure both methods with the same budget; returns the page.

    They share the score model and then run side by side, one thread each: networks this small gain
    nothing from a second thread, and the numbers come out the same however many cores there are.
    """
    out, began = Path(out), time.monotonic()
    how_many(count, load_data(DATA))  # too few are refused now, not after the training
    check_claim(out, "demo", mark=f"runs/{RIVALS[0]}")
    plan = Plan(out, seed, steps, tuple(scales), count, show_progress)
    with one_thread():
        run = plan.train(RIVALS[0], until="score")
    results = dict(side_by_side(partial(compete, plan), RIVALS, len(RIVALS)))
    reports = {method: results[method][0] for method in RIVALS}
    samples = {method: results[method][1] for method in RIVALS}
    write_json(out / "results.json", [row for report in reports.values() for row in report["results"]])
    guides = {method: report["guide"] for method, report in reports.items()}
    write_json(out / "guides.json", {"guides": guides, "seconds": round(time.monotonic() - began)})
    frames = {f"{method} missed": misses(run, images) for method, images in samples.items()}
    write_arrays(out / "pictures.npz", {**pictures_of_data(run), **samples, **frames})
    return write_page(out)


def compete(plan: Plan, method: str) -> tuple[dict[str, Any], np.ndarray]:
    """One method to its report, and its first samples at the chosen λ."""
    run = plan.train(method, score=None if method == RIVALS[0] else plan.out / "runs" / RIVALS[0])
    samples: dict[float, Samples] = {}
    report = run.evaluate(
        scales=plan.scales,
        count=plan.count,
        seed=plan.seed,
        show_progress=plan.show_progress,
        keep=lambda s: samples.update({s.made["scale"]: s}),
        label_free=False,
    )
    best = samples[next(r["scale"] for r in report["results"] if r["chosen"])]
    return report, first_of_each_class(best.x.numpy(), best.y.numpy())


def misses(run: Run, images: np.ndarray) -> np.ndarray:
    """(K, count): does the judge see another class than the row's?"""
    judge = features.find("auto", run.data)
    assert judge.classify is not None, "digits have a bundled judge"
    flat = torch.as_tensor(images.reshape(-1, *images.shape[2:]))
    classes = judge.classify(flat).argmax(-1).reshape(images.shape[:2])
    wrong: np.ndarray = (classes != torch.arange(len(images))[:, None]).numpy()
    return wrong


def pictures_of_data(run: Run) -> dict[str, np.ndarray]:
    """Real images by class, and all that a method is told: the labelled ones."""
    data, labels = run.data, run.pool.y
    few = labels >= 0
    most = int(np.bincount(labels[few].numpy()).max())
    return {
        "real": first_of_each_class(data.x.numpy(), data.y.numpy()),
        "labelled": first_of_each_class(data.x[few].numpy(), labels[few].numpy(), most),
    }
