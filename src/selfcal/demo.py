"""`selfcal demo`: classifier guidance with and without self-calibration, on digits with 2 % labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfcal.checkpoint import write_json
from selfcal.errors import SelfcalError
from selfcal.fitting import train
from selfcal.methods import CLASSIFIER_SCALES
from selfcal.metrics import features
from selfcal.report.demo_page import write_page
from selfcal.run import Run
from selfcal.sampling import Samples

DATA, LABELS = "digits", 0.02
RIVALS = ("cg", "cg-sc-all")
COUNT = 1800
PER_CLASS_SHOWN = 10


def demo(
    out: str | Path,
    seed: int = 0,
    steps: int | None = None,
    scales: Sequence[float] = CLASSIFIER_SCALES,
    count: int = COUNT,
    show_progress: bool = False,
) -> Path:
    """Train, sample and measure both methods with the same budget; returns the page."""
    out, began = Path(out), time.monotonic()
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / "runs").is_dir())):
        raise SelfcalError(f"{out} already holds something that is not a demo; choose another --out")
    results: list[dict[str, Any]] = []
    guides: dict[str, Any] = {}
    pictures: dict[str, np.ndarray] = {}
    score: Path | None = None
    for method in RIVALS:
        run = train(
            DATA,
            method,
            LABELS,
            out / "runs" / method,
            seed=seed,
            steps=steps,
            score=score,
            show_progress=show_progress,
        )
        score = score or run.path
        kept: dict[float, Samples] = {}
        report = run.evaluate(
            scales=scales,
            count=count,
            seed=seed,
            show_progress=show_progress,
            keep=lambda s, kept=kept: kept.update({s.made["scale"]: s}),
        )
        results += report["results"]
        guides[method] = report["guide"]
        best = next(r["scale"] for r in report["results"] if r["chosen"])
        pictures[method] = first_of_each_class(kept[best].x.numpy(), kept[best].y.numpy())
        pictures[f"{method} missed"] = missed(run, pictures[method])
        real, labelled = pictures_of_data(run)
    write_json(out / "results.json", results)
    write_json(out / "guides.json", {"guides": guides, "seconds": round(time.monotonic() - began)})
    shown: dict[str, Any] = {"real": real, "labelled": labelled, **pictures}
    np.savez_compressed(out / "pictures.npz", **shown)
    return write_page(out)


def first_of_each_class(x: np.ndarray, y: np.ndarray, count: int = PER_CLASS_SHOWN) -> np.ndarray:
    """(K, count, C, H, W): not picked, the first ones; blank where a class has fewer."""
    rows = []
    for c in np.unique(y):
        mine = x[y == c][:count]
        blank = np.full((count - len(mine), *x.shape[1:]), -1, dtype=x.dtype)
        rows.append(np.concatenate([mine, blank]))
    return np.stack(rows)


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
