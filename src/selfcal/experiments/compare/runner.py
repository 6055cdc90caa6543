"""The cells of a grid, side by side in processes of their own; what is done is skipped, what fails is recorded."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings, resolve
from selfcal.data import SOURCES, Dataset, load_data, reveal
from selfcal.diffusion.generator import Samples
from selfcal.evaluation.evaluate import how_many
from selfcal.experiments import costs
from selfcal.experiments.compare.board import Board
from selfcal.experiments.compare.grid import FINISHED, Cell, Grid, Protocol, canonical
from selfcal.experiments.workers import Slot
from selfcal.methods.table import find
from selfcal.report.pictures import first_of_each_class
from selfcal.training.checkpoint import write_json
from selfcal.training.fit import default_preset, train
from selfcal.training.lock import sole_owner

Task = Cell | int
"""A cell, or a seed whose score model the cells wait for."""

SAMPLE = 0.11  # plain training steps that take as long as one sample, drawn and measured


def compare(
    data: str | Path,
    methods: Sequence[str],
    labels: Sequence[str | float],
    seeds: int = 3,
    out: str | Path = "runs/compare",
    *,
    seed: int = 0,
    steps: int | None = None,
    count: int | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    jobs: int | None = None,
    command: str | None = None,
    show_progress: bool = False,
) -> Grid:
    """Train and evaluate every method with every choice of labels and every seed; the same call resumes.

    A call with other methods, labels or seeds adds cells to the folder, so long as the protocol is the
    same. seed: the first one. count: samples per guidance scale. jobs: cells at a time.
    """
    pile = load_data(data)
    chosen = resolve(preset or default_preset(pile), settings, steps)
    for name, value in (("--seeds", seeds), ("--jobs", 1 if jobs is None else jobs)):
        if value < 1:
            raise SelfcalError(f"{name} {value}: at least 1 is needed")
    if not methods or not labels:
        raise SelfcalError("nothing to compare: name at least one method and one choice of labels")
    named = [canonical(y) for y in labels]
    cells = [Cell(find(m).name, y, s) for s in range(seed, seed + seeds) for y in named for m in methods]
    for y, s in dict.fromkeys((c.labels, c.seed) for c in cells):
        pile, _ = reveal(load_data(data), y, s)  # a wrong choice of labels is told now, not after an hour
    protocol = Protocol(
        data=str(data) if str(data) in SOURCES else str(Path(data).resolve()),
        data_sha256=pile.sha256,
        preset=preset or default_preset(pile),
        settings=chosen.model_dump(mode="json"),
        samples=how_many(count, pile),
        score_labels=named[0],
    )
    grid = Grid.open(Path(out), protocol, cells)
    jobs = jobs or (1 if torch.cuda.is_available() else os.cpu_count() or 1)
    grid.invocations.append({"command": command, "jobs": jobs, "seconds": 0})
    with sole_owner(grid.out):
        grid.save()
        save_real_examples(grid.out, pile)
        with Board(grid, show=show_progress) as board:
            Runner(grid, jobs, board).work_off(cells)
    return grid


class Runner:
    """Hands tasks to free slots, in order, as soon as what they need is there."""

    def __init__(self, grid: Grid, jobs: int, board: Board) -> None:
        self.grid, self.board, self.began = grid, board, time.monotonic()
        self.settings = grid.protocol.resolved
        threads = max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // jobs))
        self.free = [Slot(threads) for _ in range(jobs)]
        self.jobs = jobs
        self.busy: dict[Future[None], tuple[Slot, Task, float]] = {}  # with the time it began
        self.waiting: list[Task] = []
        self.scores: dict[int, str] = {}  # seed: "done", or why it failed
        self.work_done, self.seconds_of_work = 0.0, 0.0

    def work_off(self, cells: list[Cell]) -> None:
        waiting = self.waiting
        blocks = list(dict.fromkeys((cell.seed, cell.labels) for cell in cells))
        # Block by block, so that a table fills early; in a block the longest first, so that none runs on alone.
        order = {c: (blocks.index((c.seed, c.labels)), -self.units(c)) for c in cells}
        for cell in sorted(cells, key=lambda c: order[c]):
            if cell.state(self.grid.out) in FINISHED:
                continue
            if cell.needs_score(self.settings) and cell.seed not in waiting:
                waiting.append(cell.seed)
            waiting.append(cell)
        try:
            while waiting or self.busy:
                for task in [t for t in waiting if self.ready(t)][: len(self.free)]:
                    waiting.remove(task)
                    self.begin(task)
                for future in wait(self.busy, timeout=1.0, return_when=FIRST_COMPLETED)[0]:
                    self.end(future)
                self.board.show([task for _, task, _ in self.busy.values()], self.seconds_left())
        finally:
            for slot in [*self.free, *(slot for slot, _, _ in self.busy.values())]:
                slot.stop()

    def seconds_left(self) -> float | None:
        """What is waiting or under way, at the pace of what is done; unknown before anything is."""
        if not self.work_done:
            return None
        pace, now = self.seconds_of_work / self.work_done, time.monotonic()
        left = sum(pace * self.units(task) for task in self.waiting)
        for _, task, began in self.busy.values():
            left += max(0.0, pace * self.units(task) - (now - began))
        return left / self.jobs

    def units(self, task: Task) -> float:
        return work_units(task, self.settings, self.grid.protocol.samples)

    def ready(self, task: Task) -> bool:
        return isinstance(task, int) or not task.needs_score(self.settings) or task.seed in self.scores

    def begin(self, task: Task) -> None:
        if isinstance(task, Cell) and self.scores.get(task.seed, "done") != "done":
            record_failure(self.grid, task, f"the score model of seed {task.seed} failed: {self.scores[task.seed]}", "")
            self.board.finished(task, self.seconds_left())
            return
        slot = self.free.pop()
        function = train_score if isinstance(task, int) else fill
        self.busy[slot.submit(function, self.grid, task)] = (slot, task, time.monotonic())

    def end(self, future: Future[None]) -> None:
        slot, task, began = self.busy.pop(future)
        self.free.append(slot)
        error = future.exception()
        self.work_done += self.units(task)
        self.seconds_of_work += time.monotonic() - began
        if isinstance(task, int):
            self.scores[task] = "done" if error is None else str(error)
        elif error is not None:  # the process itself died; anything else the cell has recorded
            record_failure(self.grid, task, f"its process ended: {error}", "")
        self.grid.invocations[-1]["seconds"] = round(time.monotonic() - self.began)
        self.grid.save()
        if isinstance(task, Cell):
            self.board.finished(task, self.seconds_left())


def train_score(grid: Grid, seed: int) -> None:
    """The unconditional model of a seed, once."""
    p = grid.protocol
    settings = flat(p.settings)
    train(
        p.data, "cg", p.score_labels, grid.score_run(seed), seed=seed, preset=p.preset, settings=settings, until="score"
    )


def fill(grid: Grid, cell: Cell) -> None:
    """Train, sample and measure one cell; whatever happens becomes its outcome."""
    p, began = grid.protocol, time.monotonic()
    kept: dict[float, Samples] = {}
    try:
        run = train(
            p.data,
            cell.method,
            cell.labels,
            cell.run(grid.out),
            seed=cell.seed,
            preset=p.preset,
            settings=flat(p.settings),
            score=grid.score_run(cell.seed) if cell.needs_score(p.resolved) else None,
        )
        trained = time.monotonic()
        report = run.evaluate(
            scales=run.method.scales,
            count=p.samples,
            seed=cell.seed,
            curve=False,
            keep=lambda s: kept.update({s.made["scale"]: s}),
        )
    except Exception as error:
        told = str(error) if isinstance(error, SelfcalError) else f"{type(error).__name__}: {error}"
        record_failure(grid, cell, told, traceback.format_exc())
        return
    for samples in kept.values():
        np.savez_compressed(cell.pictures(grid.out), **shown(samples.x.numpy(), samples.y.numpy()))
    outcome = {
        "method": cell.method,
        "labels": cell.labels,
        "seed": cell.seed,
        "state": "done",
        "seconds": {"training": round(trained - began, 1), "evaluation": round(time.monotonic() - trained, 1)},
        **report,
    }
    write_json(cell.outcome(grid.out), outcome)


def record_failure(grid: Grid, cell: Cell, error: str, trace: str) -> None:
    file = cell.outcome(grid.out)
    file.parent.mkdir(parents=True, exist_ok=True)
    about = {"method": cell.method, "labels": cell.labels, "seed": cell.seed}
    write_json(file, about | {"state": "failed", "error": error, "traceback": trace})


def save_real_examples(out: Path, data: Dataset) -> None:
    known = data.y >= 0
    np.savez_compressed(
        out / "data.npz", classes=np.array(data.classes), **shown(data.x[known].numpy(), data.y[known].numpy())
    )


def shown(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Images: the first of each class, not picked. Points: enough to see their shape."""
    if x.ndim == 4:
        return {"images": first_of_each_class(x, y)}
    chosen = np.linspace(0, len(x) - 1, min(len(x), 1000)).round().astype(int)
    return {"x": x[chosen].astype(np.float32), "y": y[chosen]}


def flat(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{name}": value for section, values in settings.items() for name, value in values.items()}


def work_units(task: Task, settings: Settings, samples: int) -> float:
    """A task's length in plain training steps, from the measured costs; to tell how much time is left."""
    if isinstance(task, int):
        return float(settings.score.steps)
    known, row = costs.measured(), find(task.method)
    steps = sum(
        stage.settings(settings).steps * known.get(costs.key(row.name, stage), 1.0)
        for stage in row.stages(settings)
        if stage.name != "score"
    )
    sets = len(row.scales) + 1 if len(row.scales) > 1 else 1  # one is reported, the others choose λ
    return steps + SAMPLE * samples * sets
