"""Which guide an adopted model should have: fresh, or on its own features, frozen or trained on.

    python benchmarks/adopt.py --out runs/adopt            # all of it: see docs/results/adopt.md for how long
    python benchmarks/adopt.py --out runs/adopt --quick    # does it go through?

Trains one DDPM with diffusers alone on Fashion-MNIST at 16×16 pixels, adopts it with four labels per class in three
ways and over several choices of the labels, and writes OUT/adopt.json, OUT/adopt.md (accuracy of the guide over σ,
generation accuracy, intra-FD) and pictures. What is done is kept: the same command goes on. With --size 28 nothing is
made smaller.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from PIL import Image
from torch import Tensor

import selfcal
from selfcal.core.files import read_json, write_arrays, write_bytes, write_json, write_text
from selfcal.data.sources import load_data
from selfcal.diffusion.pictures import png

GUIDES = ("fresh", "score", "score-frozen")
SCALES = (1.5, 3.0, 6.0)  # λ, of which one is chosen on samples of its own
SHOWN = (0.02, 0.1, 0.3, 0.6, 1.5, 3.0)  # σ, of the table
PICTURED = 8  # samples of each class


def images(out: Path, size: int) -> Path:
    """Fashion-MNIST as a file: 28×28, or with a frame of two black pixels and averaged over 2×2, 16×16."""
    path = out / f"fashion{size}.npz"
    if not path.exists():
        data = load_data("fashion")
        found = {"x": bytes_of(data.x, size), "x_test": bytes_of(data.x_test, size)}
        found |= {"y": data.y.numpy(), "y_test": data.y_test.numpy(), "class_names": np.array(data.classes)}
        write_arrays(path, found)
    return path


def bytes_of(x: Tensor, size: int) -> np.ndarray:
    if size == 16:
        x = F.avg_pool2d(F.pad(x, (2, 2, 2, 2), value=-1.0), 2)
    elif size != x.shape[-1]:
        raise SystemExit(f"--size {size}: 16 or {x.shape[-1]}")
    found: np.ndarray = ((x + 1) * 127.5).round().byte().numpy()
    return found


def unet(size: int) -> UNet2DModel:
    """Grey images, 0.7 million weights."""
    return UNet2DModel(
        sample_size=size,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32, 64),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )


def pipeline(out: Path, x: Tensor, steps: int) -> Path:
    """As anybody trains one with diffusers: predicts the noise, linear β, the weights' average."""
    path = out / "ddpm"
    if (path / "model_index.json").exists():
        return path
    torch.manual_seed(0)
    net, scheduler = unet(x.shape[-1]), DDPMScheduler()
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    optimiser = torch.optim.Adam(net.parameters())
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 1e-3 * (1 - step / steps)
        x0 = x[torch.randint(len(x), (32,))]
        z, t = torch.randn_like(x0), torch.randint(1000, (32,))
        loss = (net(scheduler.add_noise(x0, z, t), t).sample - z).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        average.update_parameters(net)
        if step % 100 == 0:
            print(f"ddpm {step}/{steps} loss {float(loss.detach()):.3f}", flush=True)
    DDPMPipeline(average.module, scheduler).save_pretrained(path)
    return path


def measured(source: Path, data: Path, guide: str, method: str, seed: int, options: argparse.Namespace) -> dict:
    """One adoption and its evaluation; seconds are of the processor, of a training that was not interrupted."""
    out, name = options.out, f"{guide}-{method}-{seed}"
    file, whole = out / f"{name}.json", not (out / name).exists()
    if not file.exists():
        began = time.process_time()
        run = selfcal.adopt(
            source, data, "4/class", method, out / name, seed=seed, guide_on=guide, steps=options.guide_steps,
            show_progress=True,
        )  # fmt: skip
        about = {"guide_on": guide, "method": method, "seed": seed, "diverged": run.diverged, "parameters": size(run)}
        about["seconds"] = time.process_time() - began if whole else None
        report = run.evaluate(
            scales=SCALES, count=options.count, intervals=False, curve=False, label_free=False, show_progress=True
        )
        write_json(file, about | {key: report[key] for key in ("results", "selection", "guide", "learned")})
        if report["results"]:
            pictures = run.sample(count=PICTURED * len(run.classes), scale=report["results"][0]["scale"])
            pictures.save(out / f"{name}.png")
    found: dict[str, Any] = read_json(file)
    return found


def size(run: selfcal.Run) -> int:
    return sum(p.numel() for p in run.networks["classifier"].parameters())


def row(guide: str, method: str, reports: list[dict[str, Any]]) -> str:
    """Means over the seeds, at the λ that each chose."""
    found = [report["results"][0] for report in reports if report["results"]]
    numbers = [f"{mean(near(report, s)['accuracy'] for report in reports):.3f}" for s in SHOWN]
    numbers += [f"{mean(r['sc_fraction'] for r in found):.3f}", ", ".join(f"{r['scale']:g}" for r in found)]
    numbers += [f"{mean(r['accuracy'] for r in found):.3f}", f"{mean(r['intra_fid'] for r in found):.1f}"]
    whole = [report["seconds"] for report in reports if report["seconds"]]
    numbers.append(f"{mean(whole) / 60:.1f}" if whole else "")
    return f"| {guide} | {method} | {len(reports)} | " + " | ".join(numbers) + " |"


def near(report: dict[str, Any], sigma: float) -> dict[str, Any]:
    found: dict[str, Any] = min(report["guide"], key=lambda g: abs(np.log(g["sigma"] / sigma)))
    return found


def mean(values: Any) -> float:
    return statistics.mean(values)


def table(reports: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    first = next(iter(reports.values()))[0]
    sigmas = [f"acc. σ={near(first, s)['sigma']:.2g}" for s in SHOWN]
    heads = ["guide", "method", "seeds", *sigmas, "SC fraction", "λ", "gen. acc.", "intra-FD", "min. of one core"]
    rows = [row(*key, found) for key, found in reports.items()]
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *rows]) + "\n"


def beside_each_other(out: Path, method: str) -> None:
    """The samples of the first seed's guides as one picture, in their order."""
    files = [out / f"{guide}-{method}-0.png" for guide in GUIDES]
    pictures = [Image.open(file).convert("RGB") for file in files if file.exists()]
    if len(pictures) < len(GUIDES):  # one diverged
        return
    joined = Image.new("RGB", (sum(p.width + 24 for p in pictures) - 24, max(p.height for p in pictures)), "white")
    for place, picture in enumerate(pictures):
        joined.paste(picture, (place * (picture.width + 24), 0))
    write_bytes(out / f"{method}.png", png(joined))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/adopt"))
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--ddpm-steps", type=int, default=4000)
    parser.add_argument("--guide-steps", type=int, default=1000)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default="cg-sc-all", help="separated by commas")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.ddpm_steps, options.guide_steps, options.count, options.seeds = 20, 3, 40, 1
    options.out.mkdir(parents=True, exist_ok=True)
    data = images(options.out, options.size)
    source = pipeline(options.out, load_data(data).x, options.ddpm_steps)
    reports: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in range(options.seeds):
        for method in options.methods.split(","):
            for guide in GUIDES:
                report = measured(source, data, guide, method, seed, options)
                reports.setdefault((guide, method), []).append(report)
                write_json(options.out / "adopt.json", [r for found in reports.values() for r in found])
                write_text(options.out / "adopt.md", table(reports))
    for method in options.methods.split(","):
        beside_each_other(options.out, method)
    print(table(reports), json.dumps(vars(options), default=str), sep="\n")


if __name__ == "__main__":
    main()
