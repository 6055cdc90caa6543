"""`selfcal.train`: from what a user asks for to a finished run directory; the same call resumes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

import selfcal
from selfcal import run as runs
from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced, write_json
from selfcal.core.settings import Settings, presets, resolve
from selfcal.data import SOURCES, Dataset, Pool, load_data, reveal
from selfcal.methods import table as methods
from selfcal.methods.table import Stage
from selfcal.nets import without_memory
from selfcal.training import processes
from selfcal.training.donor import compatible_score, score_sha256, take_over
from selfcal.training.lock import claimed
from selfcal.training.lock import differences as differences
from selfcal.training.processes import wait_for_everyone
from selfcal.training.pseudo_labels import complete
from selfcal.training.signals import StopRequest, stop_requests
from selfcal.training.stage import Diverged, StageTraining
from selfcal.training.stage import new_learner as new_learner


def train(
    data: str | Path,
    method: str = "cg-sc-all",
    labels: str | float = 0.02,
    out: str | Path = "runs/selfcal",
    *,
    seed: int = 0,
    steps: int | None = None,
    score: str | Path | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    until: str | None = None,
    show_progress: bool = False,
) -> runs.Run:
    """Train what the method needs and return the run. Everything is checked before anything is written.

    score: another run whose unconditional model is taken over instead of being trained.
    until: the stage after which to stop, for instance "score"; the same call without it goes on.
    steps: how long each network is trained. settings: {"terms.sc_weight": 10} or ["terms.sc_weight=10"].
    """
    row = methods.find(method)
    pile, seen = reveal(load_data(data), labels, seed)
    chosen = resolve(preset or default_preset(pile), settings, steps)
    if chosen.data.flips and not pile.is_image:
        raise SelfcalError(f"data.flips mirrors images; {pile.name} holds points")
    for stage in row.stages(chosen):  # refuses settings that do not fit the data, before anything is written
        without_memory(stage.build, chosen, pile.shape, len(pile.classes))
    donor = compatible_score(runs.load(score), row, chosen, pile) if score is not None else None
    config = describe(data, pile, seen, row.name, labels, seed, chosen, donor)

    accelerator = processes.accelerator()
    check_shares(row, chosen, accelerator.num_processes)
    with ExitStack() as held:
        if accelerator.is_main_process:
            held.enter_context(claimed(Path(out), config))
        wait_for_everyone(accelerator)
        run = runs.load(out)
        if run.diverged:
            return run
        if donor is not None and accelerator.is_main_process:
            take_over(donor, run.path)
        wait_for_everyone(accelerator)
        stop = held.enter_context(stop_requests())
        held.enter_context(torch.random.fork_rng())  # every step seeds torch anew; the caller's state is left alone
        try:
            train_stages(run, pile, Pool(seen), accelerator, stop, until, show_progress)
        except Diverged as result:
            if accelerator.is_main_process:
                with surfaced(f"cannot write to {run.path}"):
                    write_json(run.path / "diverged.json", result.report)
            wait_for_everyone(accelerator)
    return run


def check_shares(row: methods.Method, settings: Settings, world: int) -> None:
    """Equal shares of labelled and unlabelled examples: only then is the mean of means the mean."""
    for stage in row.stages(settings) if world > 1 else ():
        if stage.settings(settings).batch % (2 * world):
            raise SelfcalError(
                f"{stage.role}.batch = {stage.settings(settings).batch} cannot be shared evenly by {world} "
                f"processes; choose a multiple of {2 * world}"
            )


def train_stages(
    run: runs.Run,
    data: Dataset,
    pool: Pool,
    accelerator: Accelerator,
    stop: StopRequest,
    until: str | None,
    show_progress: bool,
) -> None:
    """One after the other; a later one may build on the networks of those before."""
    networks: dict[str, nn.Module] = {}
    for stage in run.stages:
        labelled = with_pseudo_labels(run, stage, networks, data, pool, accelerator) if stage.pseudo_labels else pool
        training = StageTraining(run, stage, networks, data, labelled, accelerator)
        networks[stage.role] = training.finish(stop, show_progress)
        if stage.name == until:
            break


def with_pseudo_labels(
    run: runs.Run,
    stage: Stage,
    networks: Mapping[str, nn.Module],
    data: Dataset,
    pool: Pool,
    accelerator: Accelerator,
) -> Pool:
    """The pool as the classifier before sees it; how many labels it gave goes into pseudo_labels.json."""
    y, report = complete(
        networks["classifier"],
        data,
        pool,
        run.noise.sigma_min,
        run.settings.terms.pl_threshold,
        accelerator.device,
    )
    before = run.pseudo_labels or {}
    if accelerator.is_main_process and before.get(stage.name) != report:
        file = run.path / "pseudo_labels.json"
        with surfaced(f"cannot write {file}"):
            write_json(file, before | {stage.name: report})
    return Pool(y)


def default_preset(data: Dataset) -> str:
    """A bundled data set has a preset of its own; other points are treated as moons, other piles as images."""
    if data.name in SOURCES and data.name in presets():
        return data.name
    return "images" if data.is_image else "moons"


def describe(
    source: str | Path,
    data: Dataset,
    seen: Tensor,
    method: str,
    labels: str | float,
    seed: int,
    settings: Settings,
    donor: runs.Run | None,
) -> dict[str, Any]:
    """config.json: everything resolved, enough to make the run again."""
    known, text = str(source) in SOURCES, str(labels)
    return {
        "selfcal": selfcal.__version__,
        "method": method,
        "data": {
            "source": str(source) if known else str(Path(source).resolve()),
            "name": data.name,
            "sha256": data.sha256,
            "shape": list(data.shape),
            "classes": list(data.classes),
            "examples": len(data.x),
            "test": len(data.x_test),
        },
        "labels": str(Path(text).resolve()) if text.lower().endswith(".csv") else text,
        "labelled": int((seen >= 0).sum()),
        "labels_sha256": hashlib.sha256(seen.numpy().tobytes()).hexdigest(),
        "seed": seed,
        "score_from": None if donor is None else score_sha256(donor),
        "settings": settings.model_dump(mode="json"),
    }
