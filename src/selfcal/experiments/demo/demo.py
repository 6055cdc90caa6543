"""`selfcal demo`: classifier guidance with and without self-calibration, on digits with 2 % labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfcal.core.errors import SelfcalError
from selfcal.diffusion.generator import Samples
from selfcal.evaluation import features
from selfcal.experiments import workers
from selfcal.experiments.demo.page import write_page
from selfcal.methods.table import CLASSIFIER_SCALES
from selfcal.report.pictures import first_of_each_class
from selfcal.run import Run
from selfcal.training.checkpoint import write_json
from selfcal.training.fit import train

DATA, LABELS = "digits", 0.02
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
        return train(
            DATA, method, LABELS, folder, seed=self.seed, steps=self.steps, score=score, until=until, show_progress=show
        )


def demo(
    out: str | Path,
    seed: int = 0,
    steps: int | None = None,
    scales: Sequence[float] = CLASSIFIER_SCALES,
    count: int = COUNT,
    show_progress: bool = False,
) -> Path:
    """Train, sample and measure both methods with the same budget; returns the page.

    They share the score model and then run side by side, one thread each: networks this small gain
    nothing from a second thread, and the numbers come out the same however many cores there are.
    """
    out, began = Path(out), time.monotonic()
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / "runs").is_dir())):
        raise SelfcalError(f"{out} already holds something that is not a demo; choose another --out")
    plan = Plan(out, seed, steps, tuple(scales), count, show_progress)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = plan.train(RIVALS[0], until="score")
    finally:
        torch.set_num_threads(threads)
    with ProcessPoolExecutor(len(RIVALS), get_context("spawn"), initializer=workers.start) as pool:
        reports = dict(zip(RIVALS, pool.map(rival, RIVALS, [plan] * len(RIVALS)), strict=True))
    real, labelled = pictures_of_data(run)
    shown: dict[str, Any] = {"real": real, "labelled": labelled}
    for method, (_, made) in reports.items():
        shown |= {method: made, f"{method} missed": missed(run, made)}
    write_json(out / "results.json", [row for report, _ in reports.values() for row in report["results"]])
    guides = {method: report["guide"] for method, (report, _) in reports.items()}
    write_json(out / "guides.json", {"guides": guides, "seconds": round(time.monotonic() - began)})
    np.savez_compressed(out / "pictures.npz", **shown)
    return write_page(out)


def rival(method: str, plan: Plan) -> tuple[dict[str, Any], np.ndarray]:
    """One method to its report, and its first samples at the chosen λ."""
    run = plan.train(method, score=None if method == RIVALS[0] else plan.out / "runs" / RIVALS[0])
    kept: dict[float, Samples] = {}
    report = run.evaluate(
        scales=plan.scales,
        count=plan.count,
        seed=plan.seed,
        show_progress=plan.show_progress,
        keep=lambda s: kept.update({s.made["scale"]: s}),
    )
    best = next(r["scale"] for r in report["results"] if r["chosen"])
    return report, first_of_each_class(kept[best].x.numpy(), kept[best].y.numpy())


def missed(run: Run, shown: np.ndarray) -> np.ndarray:
    """(K, count): does the judge see another class than the row's?"""
    judge = features.find("auto", run.data)
    assert judge.classify is not None, "digits have a bundled judge"
    flat = torch.as_tensor(shown.reshape(-1, *shown.shape[2:]))
    seen = judge.classify(flat).argmax(-1).reshape(shown.shape[:2])
    wrong: np.ndarray = (seen != torch.arange(len(shown))[:, None]).numpy()
    return wrong


def pictures_of_data(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Real images by class, and all that a method is told: the labelled ones."""
    data, seen = run.data, run.pool.y
    real = first_of_each_class(data.x.numpy(), data.y.numpy())
    few = seen >= 0
    most = int(np.bincount(seen[few].numpy()).max())
    return real, first_of_each_class(data.x[few].numpy(), seen[few].numpy(), most)
