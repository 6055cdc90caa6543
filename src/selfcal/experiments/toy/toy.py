"""`selfcal toy`: the gradients of classifiers against the exact ones, on two moons with few labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch

from selfcal.core.errors import SelfcalError
from selfcal.core.progress import bar
from selfcal.core.settings import Settings, resolve
from selfcal.data import moons
from selfcal.experiments import workers
from selfcal.experiments.toy.page import write_page
from selfcal.experiments.toy.rival import TRUTH, Task, compete, draw
from selfcal.methods import table as methods
from selfcal.training.checkpoint import write_json
from selfcal.training.fit import differences

RIVALS = ("cg", "cg-sc-all", "cg-dlsm", "cg-jem")
JEM = "cg-jem"
JEM_SHARE = 8  # 30 Langevin steps make one step of JEM as dear as a dozen of CG: it gets an eighth of them


def toy(
    out: str | Path,
    *,
    rivals: Sequence[str] = RIVALS,
    labels: int = 60,
    seed: int = 0,
    seeds: int = 10,
    steps: int | None = None,
    jem_steps: int | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    jobs: int = 2,
    show_progress: bool = False,
) -> Path:
    """Train every rival on every seed, measure its gradients, and write the table, the figures and the page.

    Seeds seed … seed + seeds − 1; what is already there is not done again. Each task has one thread:
    networks this small gain nothing from a second, and the numbers do not depend on the number of cores.
    """
    out, chosen = Path(out), resolve("moons", settings, steps)
    own_steps = {JEM: max(1, chosen.classifier.steps // JEM_SHARE) if jem_steps is None else jem_steps}
    check(rivals, labels)
    for name, value in (("--seeds", seeds), ("--jobs", jobs), ("--jem-steps", own_steps[JEM])):
        if value < 1:
            raise SelfcalError(f"{name} {value}: at least 1 is needed")
    for s in range(seed, seed + seeds):
        draw(labels, s)  # before anything is written: does every class have a label?
    claim(out, {"labels": labels, "settings": chosen.model_dump(mode="json"), "own_steps": own_steps})
    tasks = [
        Task(method, s, labels, with_steps(chosen, own_steps.get(method)), out / "seeds" / f"{s:04d}")
        for s in range(seed, seed + seeds)
        for method in (TRUTH, *dict.fromkeys(rivals))
    ]
    to_do = [t for t in tasks if not t.result.exists()]
    with bar("toy", len(tasks), len(tasks) - len(to_do), show_progress and bool(to_do)) as tick:
        for done in side_by_side(to_do, jobs):
            tick(1, f"seed {done['seed']} · {done['method']} {done['seconds']:.0f} s")
    write_json(
        out / "results.json",
        {
            "labels": labels,
            "examples": moons.TRAIN,
            "settings": chosen.model_dump(mode="json"),
            "results": [json.loads(t.result.read_text("utf-8")) for t in tasks],
        },
    )
    return write_page(out)


def side_by_side(tasks: list[Task], jobs: int) -> Iterator[dict[str, Any]]:
    """Results as they come in, from `jobs` processes; with one job, from this one."""
    if jobs == 1 or len(tasks) <= 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from map(compete, tasks)
        finally:
            torch.set_num_threads(threads)
        return
    others = set(active_children())
    with ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn"), initializer=workers.start) as pool:
        try:
            for future in as_completed([pool.submit(compete, task) for task in tasks]):
                yield future.result()
        except BaseException:  # otherwise an error or an interrupt would wait for all the rest
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(active_children()) - others:
                worker.terminate()
            raise


def with_steps(settings: Settings, steps: int | None) -> Settings:
    if steps is None:
        return settings
    return settings.model_copy(update={"classifier": settings.classifier.model_copy(update={"steps": steps})})


def check(rivals: Sequence[str], labels: int) -> None:
    for name in rivals:
        stages = [stage.name for stage in methods.find(name).stages(Settings())]
        if stages != ["score", "classifier"]:
            raise SelfcalError(f"the toy compares gradients of classifiers, and {name} does not guide by just one")
    if not rivals:
        raise SelfcalError("no method is named; give --methods for instance cg,cg-sc-all")
    if not 2 <= labels <= moons.TRAIN:
        raise SelfcalError(f"--labels {labels}: of the {moons.TRAIN} points at least 2 and at most all can be labelled")


def claim(out: Path, config: dict[str, Any]) -> None:
    """Make the folder, or recognise it as this very comparison (of whatever methods and seeds)."""
    file = out / "toy.json"
    if file.exists():
        unlike = differences(json.loads(file.read_text("utf-8")), config)
        if unlike:
            named = ", ".join(unlike[:6])
            raise SelfcalError(
                f"{out} holds another comparison; it differs in {named}. Choose another --out, or remove it"
            )
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SelfcalError(f"{out} already holds something that is not a toy comparison; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    write_json(file, config)
