"""The cells of a grid, side by side in processes of their own, here or on a cluster; what is done is skipped, what
fails is recorded."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfcal.core.bounds import MOST_JOBS, MOST_SEEDS, check_seed, check_whole
from selfcal.core.errors import SelfcalError
from selfcal.core.files import write_arrays
from selfcal.core.progress import say
from selfcal.core.settings import pairs, resolve
from selfcal.data.dataset import Dataset
from selfcal.data.labels import judged_by, reveal
from selfcal.data.sources import load_data, recorded
from selfcal.data.summary import examples_in_words
from selfcal.evaluation.effort import how_many
from selfcal.experiments.compare.board import Board
from selfcal.experiments.compare.grid import MARK, Grid, canonical
from selfcal.experiments.compare.protocol import Protocol
from selfcal.experiments.compare.tasks import FINISHED, Cell, Task, examples
from selfcal.experiments.compare.variants import base, changes_of, variants
from selfcal.experiments.workers import Hands, Needs, Workers
from selfcal.methods.table import find
from selfcal.training.checkpoints import average_sha256
from selfcal.training.directory import RunDirectory, open_directory
from selfcal.training.donor import from_run
from selfcal.training.lock import sole_owner
from selfcal.training.request import Request, default_preset

SHOWN = 10  # images of each class, at most


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
    size: int | None = None,
    skip_broken: bool = False,
    test_labels: str | Path | None = None,
    vary: Sequence[str] = (),
    scales: str = "wide",
    score_seed: int | None = None,
    score: str | Path | None = None,
    label_free: bool = False,
    jobs: int | None = None,
    on: str | None = None,
    needs: str = "",
    command: str | None = None,
    show_progress: bool = False,
) -> Grid:
    """Train and evaluate every method with every choice of labels and every seed; the same call resumes.

    A call with other methods, labels or seeds adds cells to the folder, so long as the protocol is the
    same. seed: the first one. count: samples per guidance scale. scales: the grid of these, "wide", "far" or "paper".
    vary: settings to try, "terms.sc_weight=1,10": each value makes rows of its own.
    score_seed: of the one score model for all seeds, which then differ in labels and guides; score: a run that has it.
    label_free: also record the λ that each cell would choose without labels. jobs: cells at a time.
    on: "ray" or "ray:ADDRESS", the cluster that does the work; needs: of each cell there, "cpus=4,gpus=0.5".
    """
    pile = load_data(data, size, skip_broken)
    name = preset or default_preset(pile)
    changes = resolve(name, settings, steps)
    shared = None if score is None else shared_score(score, score_seed)
    if shared is not None and steps is None and "score.steps" not in dict(pairs(settings)):
        changes = changes.with_steps({"score": shared.settings.score.steps})
    check(seeds, jobs, methods, labels)
    check_seed(seed)
    check_seed(score_seed or 0, "--score-seed")
    for method in methods:
        find(method).grid(scales)
    rows = variants([find(m).name for m in methods], vary)
    for row in rows:
        resolve(name, dict(pairs(settings)) | changes_of(row), steps)  # a wrong value is told now
    cells = [Cell(m, canonical(y), s) for s in range(seed, seed + seeds) for y in labels for m in rows]
    pile = with_labels(pile, cells, test_labels)
    how_read = Request(data, size=size, skip_broken=skip_broken, test_labels=test_labels).how_read()
    protocol = Protocol(
        recorded(data),
        pile.sha256,
        name,
        changes.model_dump(mode="json"),
        how_many(count, pile),
        cells[0].labels,
        scales,
        score_seed,
        label_free,
        how_read,
        None if shared is None else str(shared.path.resolve()),
        None if shared is None else average_sha256(shared.checkpoints("score"))[1],
    )
    if shared is not None:
        check_taken_over(shared, protocol, cells, pile)
    hands = hands_for(Path(out), jobs, on, needs)
    Grid.open(Path(out), protocol, cells)  # what is refused, is now; and the folder is made
    for line in (examples_in_words(pile), *pile.notes) if show_progress else ():
        say(line)
    with sole_owner(Path(out)):
        grid = Grid.open(Path(out), protocol, cells)  # with the cells that somebody added meanwhile
        grid.invocations.append({"command": command, "jobs": hands.jobs, "seconds": 0})
        grid.save()
        save_real_examples(grid.out, pile)
        with Board(grid, show=show_progress) as board:
            Runner(grid, hands, board).work_off(cells)
    return grid


def hands_for(out: Path, jobs: int | None, on: str | None, needs: str) -> Hands[Task]:
    """Processes of this machine, or of a cluster whose nodes all see `out`."""
    if on is None:
        if needs:
            raise SelfcalError("--needs is for a cluster: add --on ray; here --jobs says how many cells run at a time")
        jobs = jobs or (1 if torch.cuda.is_available() else os.cpu_count() or 1)
        return Workers(jobs, max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // jobs)))
    kind, _, address = on.partition(":")
    if kind != "ray":
        raise SelfcalError(f"--on {on!r} is unknown; it can be ray, or ray:ADDRESS")
    from selfcal.experiments.ray_workers import RayWorkers

    return RayWorkers(address or "auto", Needs.read(needs), out / MARK, jobs)


def shared_score(run: str | Path, score_seed: int | None) -> RunDirectory:
    """The run that has the score model of all cells."""
    if score_seed is not None:
        raise SelfcalError("--score and --score-seed: one takes a score model that is there, the other trains one")
    return open_directory(run)


def check_taken_over(shared: RunDirectory, protocol: Protocol, cells: Sequence[Cell], pile: Dataset) -> None:
    """Whether its score model fits, before an hour is spent on what does not need it."""
    cell = next((c for c in cells if c.needs_score(protocol)), None)
    if cell is None:
        raise SelfcalError(f"--score {shared.path}: none of these methods uses a score model")
    options = protocol.training | {"settings": protocol.changes | changes_of(cell.method)}
    request = Request(protocol.data, base(cell.method), cell.labels, cell.seed, **options)
    from_run(shared, request.prepared(loaded=pile))


def check(seeds: int, jobs: int | None, methods: Sequence[str], labels: Sequence[str | float]) -> None:
    check_whole("--seeds", seeds, 1, MOST_SEEDS)
    check_whole("--jobs", 1 if jobs is None else jobs, 1, MOST_JOBS)
    if not methods or not labels:
        raise SelfcalError("nothing to compare: name at least one method and one choice of labels")


def with_labels(data: Dataset, cells: Sequence[Cell], test_labels: str | Path | None) -> Dataset:
    """The data, its classes as the labels have them; a wrong choice of labels is told now, not after an hour."""
    for labels, seed in dict.fromkeys((c.labels, c.seed) for c in cells):
        pile, _ = reveal(data, labels, seed)
    if test_labels is not None:
        judged_by(pile, test_labels)
    return pile


def save_real_examples(out: Path, data: Dataset) -> None:
    labelled = (data.y >= 0).nonzero()[:, 0]
    if data.is_image and len(labelled):  # those that are shown, not all as floats
        labelled = torch.cat([(data.y == c).nonzero()[:SHOWN, 0] for c in data.y[labelled].unique().tolist()])
    arrays = examples(data.x[labelled].numpy(), data.y[labelled].numpy())
    write_arrays(out / "data.npz", {"classes": np.array(data.classes), **arrays})


class Runner:
    """Hands tasks to free workers, in order, as soon as what they wait for is there."""

    def __init__(self, grid: Grid, workers: Hands[Task], board: Board) -> None:
        self.grid, self.board, self.workers = grid, board, workers
        self.waiting: list[Task] = []
        self.running: dict[Task, float] = {}  # and when it began
        self.errors: dict[Task, str] = {}  # of those that are over, "" if all went well
        self.began, self.work_done, self.seconds_of_work = time.monotonic(), 0.0, 0.0

    def work_off(self, cells: Sequence[Cell]) -> None:
        self.waiting = self.in_order(cells)
        with self.workers:
            while self.waiting or self.running:
                for task in [t for t in self.waiting if self.is_ready(t)]:
                    if self.workers.has_room:
                        self.begin(task)
                for task, future in self.workers.ended(timeout=1.0):
                    self.end(task, future)
                self.board.show(list(self.running), self.seconds_left())

    def in_order(self, cells: Sequence[Cell]) -> list[Task]:
        """Block by block, so that a table fills early; in a block the longest first, so that none runs on alone."""
        blocks = list(dict.fromkeys((cell.seed, cell.labels) for cell in cells))
        order = {c: (blocks.index((c.seed, c.labels)), -self.units(c)) for c in cells}
        tasks: dict[Task, None] = {}  # each once
        for cell in sorted(cells, key=lambda c: order[c]):
            if cell.state(self.grid.out) not in FINISHED:
                score = cell.waits_for(self.grid.protocol)
                tasks |= {cell: None} if score is None else {score: None, cell: None}
        return list(tasks)

    def seconds_left(self) -> float | None:
        """What is waiting or under way, at the pace of what is done; unknown before anything is."""
        if not self.work_done:
            return None
        pace, now = self.seconds_of_work / self.work_done, time.monotonic()
        left = sum(pace * self.units(task) for task in self.waiting)
        for task, began in self.running.items():
            left += max(0.0, pace * self.units(task) - (now - began))
        return left / self.workers.jobs

    def units(self, task: Task) -> float:
        return task.units(self.grid.protocol)

    def is_ready(self, task: Task) -> bool:
        score = task.waits_for(self.grid.protocol)
        return score is None or score in self.errors

    def begin(self, task: Task) -> None:
        self.waiting.remove(task)
        score = task.waits_for(self.grid.protocol)
        if score is not None and self.errors[score]:
            task.fail(self.grid.out, f"the score model of seed {score.seed} failed: {self.errors[score]}")
            self.board.finished(task, self.seconds_left())
            return
        self.running[task] = time.monotonic()
        self.board.begun(task)
        self.workers.start(task, task.work, self.grid.out.resolve(), self.grid.protocol)

    def end(self, task: Task, future: Future[None]) -> None:
        error, seconds = future.exception(), time.monotonic() - self.running.pop(task)
        self.work_done += self.units(task)
        self.seconds_of_work += seconds
        self.errors[task] = "" if error is None else str(error) or type(error).__name__
        if error is not None:  # of a cell, the process itself died; anything else it has recorded
            task.fail(self.grid.out, f"its process ended: {error}")
        self.grid.invocations[-1]["seconds"] = round(time.monotonic() - self.began)
        self.grid.save()
        self.board.finished(task, self.seconds_left())
