"""`selfcal toy`: the gradients of classifiers against the exact ones, on two moons with few labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from selfcal.core.bounds import MOST_JOBS, MOST_SEEDS, MOST_STEPS, check_seed, check_whole
from selfcal.core.errors import SelfcalError
from selfcal.core.files import make_folder, write_json
from selfcal.core.progress import bar
from selfcal.core.reading import advising, read_record
from selfcal.core.settings import Settings, resolve
from selfcal.data import moons
from selfcal.experiments.toy import records
from selfcal.experiments.toy.page import write_page
from selfcal.experiments.toy.records import AGAIN, RESTORE, Result
from selfcal.experiments.toy.rival import TRUTH, Task, compete, draw
from selfcal.experiments.workers import side_by_side
from selfcal.methods import table as methods
from selfcal.training.lock import check_claim, differences

RIVALS = ("cg", "cg-sc-all", "cg-dlsm", "cg-jem")
JEM = "cg-jem"
JEM_SHARE = 8  # 30 Langevin steps make one step of JEM as dear as a dozen of CG: it gets an eighth of them


@dataclass(frozen=True)
class Study:
    """What is compared: every rival on the seeds seed … seed + seeds − 1, with so many labels and steps."""

    rivals: Sequence[str] = RIVALS
    labels: int = 60
    seed: int = 0
    seeds: int = 10
    steps: int | None = None
    jem_steps: int | None = None
    settings: Mapping[str, Any] | Iterable[str] = ()

    @cached_property
    def resolved(self) -> Settings:
        return resolve("moons", self.settings, self.steps)

    @property
    def own_steps(self) -> dict[str, int]:
        """Of the methods that do not get the others' number."""
        share = max(1, self.resolved.classifier.steps // JEM_SHARE)
        return {JEM: share if self.jem_steps is None else self.jem_steps}

    @property
    def each_seed(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    @property
    def config(self) -> dict[str, Any]:
        """What all results of a folder have in common, of whatever methods and seeds."""
        return {
            "labels": self.labels,
            "settings": self.resolved.model_dump(mode="json"),
            "own_steps": self.own_steps,
        }

    def check(self) -> None:
        """Before anything is written."""
        for name in self.rivals:
            stages = [stage.name for stage in methods.find(name).stages(Settings())]
            if stages != ["score", "classifier"]:
                raise SelfcalError(f"the toy compares gradients of classifiers, and {name} does not guide by just one")
        if not self.rivals:
            raise SelfcalError("no method is named; give --methods for instance cg,cg-sc-all")
        if not 2 <= self.labels <= moons.TRAIN:
            raise SelfcalError(
                f"--labels {self.labels}: of the {moons.TRAIN} points at least 2 and at most all can be labelled"
            )
        check_whole("--seeds", self.seeds, 1, MOST_SEEDS)
        check_whole("--jem-steps", self.own_steps[JEM], 1, MOST_STEPS)
        check_seed(self.seed)
        for seed in self.each_seed:
            draw(self.labels, seed)  # does every class have a label?

    def tasks(self, out: Path) -> list[Task]:
        return [
            Task(method, seed, self.labels, self.settings_of(method), out / "seeds" / f"{seed:04d}")
            for seed in self.each_seed
            for method in (TRUTH, *dict.fromkeys(self.rivals))
        ]

    def settings_of(self, method: str) -> Settings:
        steps = self.own_steps.get(method, self.resolved.classifier.steps)
        return self.resolved.model_copy(
            update={"classifier": self.resolved.classifier.model_copy(update={"steps": steps})}
        )


def toy(out: str | Path, study: Study | None = None, *, jobs: int = 2, show_progress: bool = False) -> Path:
    """Train every rival on every seed, measure its gradients, and write the table, the figures and the page.

    What is already there is not done again. Each task has one thread: networks this small gain nothing
    from a second, and the numbers do not depend on the number of cores.
    """
    out, study = Path(out), study or Study()
    study.check()
    check_whole("--jobs", jobs, 1, MOST_JOBS)
    claim(out, study.config)
    tasks = study.tasks(out)
    to_do = [t for t in tasks if not t.result.exists()]
    for task in tasks:
        if task.result.exists():
            result_of(task)  # a damaged one is told now, not after the work
    with bar("toy", len(tasks), len(tasks) - len(to_do), show_progress and bool(to_do)) as tick:
        for task, result in side_by_side(compete, to_do, jobs):
            tick(1, f"seed {task.seed} · {task.method} {result['seconds']:.0f} s")
    about = {"labels": study.labels, "examples": moons.TRAIN, "settings": study.config["settings"]}
    write_json(out / "results.json", about | {"results": [result_of(t) for t in tasks]})
    return write_page(out)


def result_of(task: Task) -> dict[str, Any]:
    """What was measured, if it is this task's."""
    with advising(AGAIN):
        found: dict[str, Any] = read_record(task.result, Result)
    if (found["method"], found["seed"]) != (task.method, task.seed):
        raise SelfcalError(f"{task.result} is the result of another method or seed; {AGAIN}")
    return found


def claim(out: Path, config: dict[str, Any]) -> None:
    """Make the folder, or recognise it as this very comparison (of whatever methods and seeds)."""
    file = out / "toy.json"

    def differing() -> list[str]:
        with advising(RESTORE):
            return differences(read_record(file, records.Study), config)

    check_claim(out, "toy comparison", file.name, differing)
    if not file.exists():
        make_folder(out, within=out)
        write_json(file, config)
