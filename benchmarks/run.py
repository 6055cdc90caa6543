"""`make bench`: what selfcal claims about cost and quality, as ratios measured in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

import selfcal
from full_scale import forward_against_its_products, sc_step_in_a_process_of_its_own
from metrics import fid_against_sqrtm, neighbours_against_prdc
from selfcal.config import resolve
from selfcal.data import Pool, load_data, reveal
from selfcal.demo import demo
from selfcal.evaluation import Reference
from selfcal.fitting import new_learner
from selfcal.methods import CLASSIFIER_SCALES, METHODS, Context
from selfcal.metrics import features
from selfcal.noise import Noise, Noisy
from selfcal.training import random_state

DEMO = Path("runs/demo")  # where `make demo` leaves it


def say(name: str, value: str, bar: str, met: bool) -> None:
    print(f"{'ok ' if met else 'MISSED'}  {name}: {value}  (bar: {bar})", flush=True)


def step_of(method: str) -> Callable[[], None]:
    """One classifier step of a method on the digits network, always on the same half-labelled batch."""
    settings = resolve("digits", {"classifier.steps": 10**9})
    data, seen = reveal(load_data("digits"), 0.02, 0)
    pool, stage = Pool(seen), METHODS[method].stages(settings)[-1]
    learner = new_learner(stage, settings, data.shape, len(data.classes), 0, Accelerator())
    context = Context(settings, pool.label_fraction, {})
    terms, read = stage.terms(context), stage.read(context)
    rng = random_state(0, "bench", 0)
    pick = pool.half_labelled(settings.classifier.batch, rng)
    batch = Noise(settings.noise.sigma_min, settings.noise.sigma_max).perturb(data.x[pick], seen[pick], rng)

    def losses(network: nn.Module, batch: Noisy) -> dict:
        reading = read(network, batch)
        return {name: (t.weight, t.term(reading)) for name, t in terms.items()}

    steps = learner.run(lambda step: batch, losses)
    return lambda: next(steps)


def cost_of_a_step() -> None:
    """CE and SC+CE steps in turn, so that whatever else the machine does hits both."""
    rivals = {name: step_of(name) for name in ("cg", "cg-sc-all")}
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for i in range(220):
        for name, step in rivals.items():
            began = time.perf_counter()
            step()
            if i >= 20:
                times[name].append(time.perf_counter() - began)
    ratio = statistics.median(times["cg-sc-all"]) / statistics.median(times["cg"])
    say("an SC+CE step costs", f"{ratio:.2f} CE steps", "≤ 2.5", ratio <= 2.5)


def default_sampler_against_pc() -> None:
    """Intra-FID and time of the default sampler and of the paper's, on the demo's CG-SC-all model."""
    if not (DEMO / "report.html").exists():
        demo(DEMO, show_progress=True)
    run = selfcal.load(DEMO / "runs" / "cg-sc-all")
    judge = features.find("auto", run.data)
    reference = Reference(run.data, judge)

    def measured(seeds: tuple[int, ...], scale: float, **how) -> tuple[float, float]:
        """Mean intra-FID and total time over several sets of samples: one set is worth ± 5."""
        values, began, judging = [], time.perf_counter(), 0.0
        for seed in seeds:
            samples = run.sample(count=1800, scale=scale, seed=seed, **how)
            paused = time.perf_counter()
            values.append(reference.intra_fid(samples))
            judging += time.perf_counter() - paused
        return statistics.mean(values), time.perf_counter() - began - judging

    scale = min(CLASSIFIER_SCALES, key=lambda s: measured((10_000,), s)[0])
    quick, quick_seconds = measured((0, 1, 2), scale)
    paper, paper_seconds = measured((0, 1, 2), scale, sampler="pc")
    evaluations = run.sample(count=1, scale=scale).made["evaluations"]
    print(f"        λ = {scale}: default {quick:.1f} in {quick_seconds:.1f} s, pc {paper:.1f} in {paper_seconds:.1f} s")
    say(
        f"intra-FID of the default sampler ({evaluations} evaluations) ÷ pc (2000)",
        f"{quick / paper:.2f}",
        "≤ 1",
        quick <= paper and evaluations <= 20,
    )
    faster = paper_seconds / quick_seconds
    say("pc takes", f"{faster:.0f}× the time of the default sampler", "≥ 50×", faster >= 50)


def metrics() -> None:
    faster, apart = fid_against_sqrtm()
    say(
        "fid at n = 500, d = 2048 is",
        f"{faster:.0f}× faster than sqrtm, {apart:.0e} apart",
        "≥ 50×, 1e-4",
        faster >= 50 and apart < 1e-4,
    )
    seconds, memory, whole, large = neighbours_against_prdc()
    say("density and coverage take", f"{seconds:.2f} of prdc's time", "≤ 1", seconds <= 1)
    say("density and coverage take", f"{memory:.2f} of prdc's memory for the call", "≤ 0.25", memory <= 0.25)
    say("density and coverage take", f"{whole:.2f} of prdc's memory, torch included", "≤ 0.25", whole <= 0.25)
    say("50,000 × 50,000 × 64 peaks at", f"{large:.2f} GB", "≤ 2", large <= 2)


def full_scale() -> None:
    """The paper's NCSN++ for CIFAR-10."""
    whole, alone, shares = forward_against_its_products()
    print("        a forward pass: " + ", ".join(f"{name.removeprefix('aten.')} {share:.0%}" for name, share in shares))
    ratio = whole / alone
    say("a full-size forward pass takes", f"{ratio:.2f}× its convolutions and products", "≤ 1.5×", ratio <= 1.5)
    seconds, gigabytes = sc_step_in_a_process_of_its_own()
    say("an SC step at full size, batch 2", f"{seconds:.1f} s and {gigabytes:.1f} GB", "≤ 20 GB", gigabytes <= 20)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    cost_of_a_step()
    full_scale()
    metrics()
    default_sampler_against_pc()
