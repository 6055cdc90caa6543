"""`make bench`: what selfcal claims about cost and quality, as ratios measured in one run.

`python benchmarks/run.py metrics` runs that part alone.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import Accelerator

import selfcal
from devices import sampling_many, second_process, training_on_many
from evaluation import evaluation_against_before
from full_scale import forward_against_its_products, sc_step_in_a_process_of_its_own
from heads import guide_steps
from metrics import fid_against_sqrtm, many_points, neighbours_against_prdc
from score_steps import SIZES, score_steps
from selfcal.core.settings import Settings
from selfcal.data.pool import Pool
from selfcal.evaluation import features
from selfcal.evaluation.reference import Reference
from selfcal.experiments import costs
from selfcal.experiments.demo.demo import demo
from selfcal.methods.stage import Context, Stage
from selfcal.methods.table import CLASSIFIER_GRIDS, METHODS
from selfcal.nets.builders import build_score
from selfcal.training.plan import Trial
from selfcal.training.request import Request
from selfcal.training.stage import Batches

DEMO = Path("runs/demo")  # where `make demo` leaves it


def say(name: str, value: str, bar: str, met: bool) -> None:
    print(f"{'ok ' if met else 'MISSED'}  {name}: {value}  (bar: {bar})", flush=True)


def step_of(stage: Stage) -> Callable[[], object]:
    """One training step of a network on the digits preset, batches drawn as in training."""
    wanted = Request("digits", labels=0.02).prepared()
    batches = Batches(wanted.data.x, Pool(wanted.labels))
    score = build_score(wanted.settings, wanted.data.shape, 0).eval().requires_grad_(False)
    context = Context(wanted.settings, batches.pool.label_fraction, {"score": score})
    trial = Trial(stage, context, batches, wanted.data, Accelerator())
    return lambda: trial.step(stage.settings(wanted.settings).batch)


def cost_of_a_step() -> None:
    """Every network of every method in turn, so that whatever else the machine does hits all; medians."""
    stages = {costs.key(m.name, stage): stage for m in METHODS.values() for stage in m.stages(Settings())}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rivals = {key: step_of(stage) for key, stage in stages.items()}
    times: dict[str, list[float]] = {key: [] for key in rivals}
    for i in range(60):
        for key, step in rivals.items():
            began = time.perf_counter()
            step()
            if i >= 5:
                times[key].append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    plain = statistics.median(times["cg · classifier"])
    ratios = {key: round(statistics.median(t) / plain, 2) for key, t in times.items()}
    about = "cost of a training step, digits preset, one thread, in steps of cg · classifier; written by make bench"
    table = json.dumps({"about": about, "costs": ratios}, indent=1, ensure_ascii=False)
    Path(costs.__file__).with_name(costs.FILE).write_text(table + "\n", encoding="utf-8")
    ratio = ratios["cg-sc-all · classifier"]
    say("an SC+CE step costs", f"{ratio:.2f} CE steps", "≤ 2.5", ratio <= 2.5)
    jem = ratios["cg-jem · classifier"] / ratio
    say("a JEM step costs", f"{jem:.1f} SC steps", "the paper's 6.03 s ÷ .75 s = 8.0", jem >= 8)


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

    scale = min(CLASSIFIER_GRIDS["paper"], key=lambda s: measured((10_000,), s)[0])
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
    for kind in ("float64", "float32"):
        ours, prdc = neighbours_against_prdc(kind)
        time_, call, whole = (getattr(ours, k) / getattr(prdc, k) for k in ("seconds", "call", "whole"))
        say(f"density and coverage ({kind}) take", f"{time_:.2f} of prdc's time", "≤ 1", time_ <= 1)
        say(f"density and coverage ({kind}) take", f"{call:.2f} of prdc's peak memory", "≤ 0.25", call <= 0.25)
        print(
            f"        ours {ours.call:.0f} MB, prdc {prdc.call:.0f} MB; with libraries and features {ours.whole:.0f} "
            f"and {prdc.whole:.0f} MB ({whole:.2f}), of which torch and the features alone are "
            f"{(ours.whole - ours.call) / prdc.whole:.2f}"
        )
    large = many_points().whole / 1024
    say("50,000 × 50,000 × 64 peaks at", f"{large:.2f} GB", "≤ 2", large <= 2)


def full_scale() -> None:
    """The paper's NCSN++ for CIFAR-10."""
    whole, alone, shares = forward_against_its_products()
    print("        a forward pass: " + ", ".join(f"{name.removeprefix('aten.')} {share:.0%}" for name, share in shares))
    ratio = whole / alone
    say("a full-size forward pass takes", f"{ratio:.2f}× its convolutions and products", "≤ 1.5×", ratio <= 1.5)
    seconds, gigabytes = sc_step_in_a_process_of_its_own()
    say("an SC step at full size, batch 2", f"{seconds:.1f} s and {gigabytes:.1f} GB", "≤ 20 GB", gigabytes <= 20)


def heads() -> None:
    """Guides of images: what the energy head and self-calibration cost."""
    seconds = guide_steps()
    sc, head = seconds["sc"] / seconds["ce"], seconds["ce"] / seconds["ce, pooled"]
    say("an SC+CE step on the fashion-small network costs", f"{sc:.2f} CE steps", "≤ 2.3", sc <= 2.3)
    say("a step with the energy head costs", f"{head:.2f} of one with the pooled head", "≤ 1.05", head <= 1.05)


def evaluation() -> None:
    """1,000 samples against Fashion-MNIST's 60,000 images, with intervals."""
    seconds, faster, apart = evaluation_against_before()
    say("measuring 1,000 samples against 60,000 images takes", f"{seconds:.1f} s", "≤ 60 s", seconds <= 60)
    say("that is", f"{faster:.0f}× faster than before, {apart:.0e} apart", "≥ 30×, 1e-6", faster >= 30 and apart < 1e-6)


def memory() -> None:
    first, again = training_on_many()
    peak = max(first, again)
    say("train on 100,000 images of 64×64×3 peaks at", f"{first:.0f} MB, again {again:.0f} MB", "≤ 2 GB", peak <= 2048)
    whole, slice_ = sampling_many()
    more = whole - slice_
    say("sample --count 50000 at 32×32×3 takes", f"{more:.0f} MB more than 64 images", "≤ 1 GB", more <= 1024)


def processes() -> None:
    for name, (faster, same) in second_process().items():
        bits = "the same bits" if same else "OTHER BITS"
        say(f"two processes {name}", f"{faster:.2f}× faster than one, {bits}", "≥ 1.7×", faster >= 1.7 and same)


def score_networks() -> None:
    """Our U-Net's training step beside diffusers' of as many parameters, and beside the original's list of layers."""
    for name in SIZES:
        ratios, parameters = score_steps(name)
        for rival, words in (("diffusers", "diffusers' UNet2DModel"), ("layers", "the original's layers")):
            about = f"a step of {name} score network ({parameters['ours']:,} parameters)"
            said = f"{ratios[rival]:.3f} of one of {words} ({parameters[rival]:,})"
            say(about, said, "≤ 1.0", ratios[rival] <= 1.0)


PARTS = {
    "steps": cost_of_a_step,
    "metrics": metrics,
    "full-scale": full_scale,
    "heads": heads,
    "evaluation": evaluation,
    "memory": memory,
    "processes": processes,
    "score-steps": score_networks,
    "samplers": default_sampler_against_pc,
}

if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
