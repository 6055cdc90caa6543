"""`selfcal.train`: from what a user asks for to a finished run directory; the same call resumes."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

import selfcal
from selfcal import checkpoint, methods
from selfcal import run as runs
from selfcal.config import Settings, presets, resolve
from selfcal.data import SOURCES, Dataset, Pool, load_data, reveal
from selfcal.data.mirror import mirrored_at_random
from selfcal.errors import SelfcalError
from selfcal.methods import Context, Stage
from selfcal.nets import without_memory
from selfcal.noise import Noisy
from selfcal.progress import bar
from selfcal.pseudo_labels import complete
from selfcal.training import Learner, Step, random_state

LARGEST = 1e8  # a loss beyond it has diverged


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

    accelerator = Accelerator()
    run = claim(Path(out), config, accelerator)
    if run.diverged:
        return run
    if donor is not None and accelerator.is_main_process:
        take_over(donor, run.path)
    accelerator.wait_for_everyone()
    networks: dict[str, nn.Module] = {}
    with torch.random.fork_rng():  # every step seeds torch anew; the caller's random state is left alone
        for stage in run.stages:
            try:
                networks[stage.role] = train_stage(run, stage, networks, pile, Pool(seen), accelerator, show_progress)
            except Diverged as result:
                if accelerator.is_main_process:
                    checkpoint.write_json(run.path / "diverged.json", result.report)
                accelerator.wait_for_everyone()
                break
            if stage.name == until:
                break
    return run


class Diverged(Exception):
    """A loss left the finite numbers: a result to report, since some methods are known for it."""

    def __init__(self, network: str, step: int, losses: dict[str, float]) -> None:
        super().__init__(network, step)
        self.report = {"network": network, "step": step, "losses": {k: str(v) for k, v in losses.items()}}


def train_stage(
    run: runs.Run,
    stage: Stage,
    networks: Mapping[str, nn.Module],
    data: Dataset,
    pool: Pool,
    accelerator: Accelerator,
    show_progress: bool,
) -> nn.Module:
    """One network to its last step, from its newest checkpoint if there is one; returns the average, frozen."""
    settings, seed, main = run.settings, run.config["seed"], accelerator.is_main_process
    if stage.pseudo_labels:
        pool = with_pseudo_labels(run, stage, networks, data, pool, accelerator)
    learner = new_learner(stage, settings, run.shape, len(run.classes), seed, accelerator)
    folder = run.path / "checkpoints" / stage.name
    saved = checkpoint.load_newest(folder)
    if saved is not None:
        learner.restore(saved[0], saved[1])
    elif stage.warm_start:
        _, weights, _ = checkpoint.load_average(run.path / "checkpoints" / stage.warm_start)
        learner.network.load_state_dict(weights)
    context = Context(settings, pool.label_fraction, dict(networks))
    terms, read = stage.terms(context), stage.read(context)

    def batch_at(step: int) -> Noisy:
        rng = random_state(seed, stage.name, step)
        pick = stage.draw(pool, learner.settings.batch, rng)
        x0 = mirrored_at_random(data.x[pick], rng) if settings.data.flips else data.x[pick]
        batch = context.noise.perturb(x0, pool.y[pick], rng)
        # Dropout, projections and chains draw from torch's global state, on a stream of their own.
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=rng)))
        return batch

    def losses_of(network: nn.Module, batch: Noisy) -> dict[str, tuple[float, Tensor]]:
        reading = read(network, batch)
        return {name: (t.weight, t.term(reading)) for name, t in terms.items()}

    total, began, first = learner.settings.steps, time.monotonic(), learner.step
    title = f"{run.method.name} · {stage.name}"
    with bar(title, total, learner.step, show=show_progress and main and learner.step < total) as tick:
        for step in learner.run(batch_at, losses_of):
            note = ""
            save = step.number % settings.run.save_every == 0 or step.number == total
            if save or step.number % settings.run.log_every == 0 or step.number == 1:
                rate = (step.number - first) / (time.monotonic() - began)
                note = log(run, stage.name, step, rate, write=main)
            tick(1, note)
            if main and save:
                checkpoint.save(folder, step.number, learner.state(), {"network": stage.name}, settings.run.keep)
    accelerator.wait_for_everyone()
    return learner.average.module.eval().requires_grad_(False)


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
    if accelerator.is_main_process:
        file = run.path / "pseudo_labels.json"
        before = json.loads(file.read_text()) if file.exists() else {}
        checkpoint.write_json(file, before | {stage.name: report})
    return Pool(y)


def new_learner(
    stage: Stage,
    settings: Settings,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    accelerator: Accelerator,
) -> Learner:
    """A fresh network whose first weights depend on the seed and the network's name alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random_state(seed, f"{stage.role}/weights", 0).initial_seed())
        network = stage.build(settings, shape, classes)
    return Learner(network, stage.settings(settings), accelerator)


def log(run: runs.Run, network: str, step: Step, rate: float, write: bool) -> str:
    """One line into log.jsonl; returns the words for the progress bar."""
    losses = {name: float(value) for name, value in step.losses.items()}
    line = {
        "network": network,
        "step": step.number,
        **losses,
        "grad_norm": float(step.grad_norm),
        "lr": step.lr,
        "steps_per_second": round(rate, 2),
    }
    if not all(abs(value) < LARGEST for value in losses.values()):  # also where it is not a number
        raise Diverged(network, step.number, losses)
    if write:
        with (run.path / "log.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
    return " ".join(f"{name} {value:.3f}" for name, value in losses.items())


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


def claim(out: Path, config: dict[str, Any], accelerator: Accelerator) -> runs.Run:
    """Make the run directory, or recognise it as this very run; refuse one that holds anything else."""
    if (out / "config.json").exists():
        before = runs.load(out)  # settings it does not know yet, being older, had today's default
        there = before.config | {"settings": before.settings.model_dump(mode="json")}
        differing = sorted(set(differences(there, config)) - {"selfcal", "data.source", "labels"})
        if differing:
            named = ", ".join(differing[:6]) + (f" and {len(differing) - 6} more" if len(differing) > 6 else "")
            raise SelfcalError(f"{out} holds another run; it differs in {named}. Choose another --out, or remove it")
        return runs.load(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SelfcalError(f"{out} already holds something that is not a run; choose another --out")
    if accelerator.is_main_process:
        try:
            out.mkdir(parents=True, exist_ok=True)
            checkpoint.write_json(out / "config.json", config)
        except OSError as error:
            raise SelfcalError(f"cannot write to {out}: {error.strerror}") from None
    accelerator.wait_for_everyone()
    return runs.load(out)


def differences(a: Any, b: Any, key: str = "") -> list[str]:
    """Dotted keys in which two configurations differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        names = sorted({*a, *b})
        return [d for n in names for d in differences(a.get(n), b.get(n), f"{key}.{n}" if key else n)]
    return [] if a == b else [key]


def compatible_score(donor: runs.Run, row: methods.Method, settings: Settings, data: Dataset) -> runs.Run:
    """The donor's score model must be finished and fit this data and these settings."""
    if "score" not in {s.name for s in row.stages(settings)} & {s.name for s in donor.stages}:
        raise SelfcalError(f"--score {donor.path}: {donor.method.name} and {row.name} do not share a score model")
    if donor.config["data"]["sha256"] != data.sha256:
        raise SelfcalError(f"--score {donor.path} was trained on other data ({donor.config['data']['name']})")
    theirs = donor.settings
    unlike = differences(theirs.score.model_dump(), settings.score.model_dump(), "score")
    unlike += differences(theirs.noise.model_dump(), settings.noise.model_dump(), "noise")
    if unlike:
        raise SelfcalError(f"--score {donor.path} was trained with another {', '.join(unlike)}")
    score_sha256(donor)
    return donor


def score_sha256(donor: runs.Run) -> str:
    step, _, sha256 = checkpoint.load_average(donor.path / "checkpoints" / "score")
    if step < donor.settings.score.steps:
        raise SelfcalError(f"--score {donor.path}: its score model is at step {step} of {donor.settings.score.steps}")
    return sha256


def take_over(donor: runs.Run, out: Path) -> None:
    """Copy the donor's newest score checkpoint, so that the new run stands on its own."""
    theirs = donor.path / "checkpoints" / "score"
    newest = f"step-{checkpoint.steps_saved(theirs)[-1]:08d}"
    ours = out / "checkpoints" / "score"
    if (ours / newest).exists():
        return
    ours.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(ours / ".writing", ignore_errors=True)
    shutil.copytree(theirs / newest, ours / ".writing")
    (ours / ".writing").rename(ours / newest)
