"""Which guide an adopted model should have: fresh, or on its own features, frozen or trained on.

    python benchmarks/adopt.py --out runs/adopt            # all of it: see docs/results/adopt.md for how long
    python benchmarks/adopt.py --out runs/adopt --quick    # does it go through?

Trains one DDPM with diffusers alone on Fashion-MNIST, adopts it with four labels per class in three ways and over
several seeds, and writes OUT/adopt.json and OUT/adopt.md: accuracy of the guide over σ, generation accuracy, intra-FD.
What is done is kept: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

import selfcal
from selfcal.core.files import read_json, write_json, write_text
from selfcal.data.sources import load_data

GUIDES = ("fresh", "score", "score-frozen")
SCALES = (1.0, 2.0, 4.0)
SHOWN = (0.1, 0.5, 1.0, 2.0, 5.0)  # σ, of the table


def unet() -> UNet2DModel:
    """28×28 grey, about a million weights."""
    return UNet2DModel(
        sample_size=28,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(24, 48, 72),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )


def pipeline(out: Path, x: torch.Tensor, steps: int) -> Path:
    """As anybody trains one with diffusers: predicts the noise, linear β, the weights' average."""
    path = out / "ddpm"
    if (path / "model_index.json").exists():
        return path
    torch.manual_seed(0)
    net, scheduler = unet(), DDPMScheduler()
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    optimiser = torch.optim.Adam(net.parameters())
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 1e-3 * (1 - step / steps)
        x0 = x[torch.randint(len(x), (64,))]
        z, t = torch.randn_like(x0), torch.randint(1000, (64,))
        loss = (net(scheduler.add_noise(x0, z, t), t).sample - z).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        average.update_parameters(net)
        if step % 100 == 0:
            print(f"ddpm {step}/{steps} loss {float(loss.detach()):.3f}", flush=True)
    DDPMPipeline(average.module, scheduler).save_pretrained(path)
    return path


def measured(source: Path, guide: str, method: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One adoption and its evaluation."""
    out, name = options.out, f"{guide}-{method}-{seed}"
    file = out / f"{name}.json"
    if not file.exists():
        settings = {"sampling.batch": 100}
        run = selfcal.adopt(
            source, "fashion", "4/class", method, out / name, seed=seed, guide_on=guide, steps=options.guide_steps,
            settings=settings, show_progress=True,
        )  # fmt: skip
        report = run.evaluate(scales=SCALES, count=options.count, intervals=False, show_progress=True)
        about = {"guide_on": guide, "method": method, "seed": seed, "diverged": run.diverged}
        write_json(file, about | {key: report[key] for key in ("results", "guide", "learned")})
    found: dict[str, Any] = read_json(file)
    return found


def row(guide: str, method: str, reports: list[dict[str, Any]]) -> str:
    """Means over the seeds; of several λ, the one chosen on samples of its own."""
    chosen = [next(r for r in report["results"] if r["chosen"]) for report in reports if report["results"]]
    accuracies = []
    for sigma in SHOWN:
        near = [min(report["guide"], key=lambda g: abs(g["sigma"] - sigma))["accuracy"] for report in reports]
        accuracies.append(f"{statistics.mean(near):.3f}")
    numbers = [
        f"{statistics.mean(r['scale'] for r in chosen):.1f}",
        f"{statistics.mean(r['accuracy'] for r in chosen):.3f}",
        f"{statistics.mean(r['intra_fid'] for r in chosen):.1f}",
    ]
    return f"| {guide} | {method} | {len(reports)} | " + " | ".join([*accuracies, *numbers]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/adopt"))
    parser.add_argument("--ddpm-steps", type=int, default=4000)
    parser.add_argument("--guide-steps", type=int, default=1500)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--methods", default="cg-sc-all", help="separated by commas")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.ddpm_steps, options.guide_steps, options.count, options.seeds = 20, 3, 40, 1
    options.out.mkdir(parents=True, exist_ok=True)
    source = pipeline(options.out, load_data("fashion").x, options.ddpm_steps)
    reports: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in range(options.seeds):
        for method in options.methods.split(","):
            for guide in GUIDES:
                report = measured(source, guide, method, seed, options)
                reports.setdefault((guide, method), []).append(report)
    head = "| guide | method | seeds | " + " | ".join(f"acc σ={s:g}" for s in SHOWN) + " | λ | gen. acc | intra-FD |"
    lines = [head, "|---" * (len(SHOWN) + 6) + "|", *(row(*key, found) for key, found in reports.items())]
    write_json(options.out / "adopt.json", [r for found in reports.values() for r in found])
    write_text(options.out / "adopt.md", "\n".join(lines) + "\n")
    print("\n".join(lines), json.dumps(vars(options), default=str), sep="\n")


if __name__ == "__main__":
    main()
