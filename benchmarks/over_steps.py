"""How a guide comes along: accuracy and self-calibration at every checkpoint that was kept, as a Markdown table.

    selfcal train … --set run.keep_every=400 --out runs/a
    python benchmarks/over_steps.py runs/a [runs/b …]

On images whose labels the guide never saw, the test split where there is one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

import selfcal
from selfcal.core.reading import read_tensors
from selfcal.data.pixels import Examples
from selfcal.evaluation.guide import evenly, guide_split, learned_by_sigma, levels, opinions
from selfcal.metrics import generation_accuracy
from selfcal.training.checkpoints import AVERAGE, path_of, steps_saved

SHOWN = (0, 3, 4, 5)  # of the nine levels of σ: without noise to be seen, and where guidance decides what is drawn
# Clean images, which `selfcal evaluate` asks about at the smallest σ, have less noise than a guide has learned there.


def noisy(x: Examples, sigma: float) -> Tensor:
    clean = evenly(x, len(x))
    return clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))


def table(run: Path, most: int) -> None:
    subject = selfcal.load(run)._subject()
    generator, folder = subject.generator, run / "checkpoints" / "classifier"
    x, y, split = guide_split(subject)
    thin = slice(None, None, max(1, -(-len(x) // most)))
    x, y = x[thin], y[thin]
    sigmas = [levels(generator)[i] for i in SHOWN]
    print(f"\n{run}, accuracy on {len(x)} images ({split})\n")
    columns = ["step", "clean", *(f"σ = {sigma:.2g}" for sigma in sigmas), "L_SC, of a zero score's"]
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for step in steps_saved(folder):
        generator.networks["classifier"].load_state_dict(read_tensors(path_of(folder, step) / AVERAGE))
        views = [(evenly(x, len(x)), sigmas[0]), *((noisy(x, sigma), sigma) for sigma in sigmas)]
        hits = [generation_accuracy(opinions(generator, view, sigma), y) for view, sigma in views]
        fractions = [row["guide"] for row in learned_by_sigma(subject)]
        mean = sum(f for f in fractions if f is not None) / len(fractions)
        print(f"| {step:,} | " + " | ".join(f"{hit:.3f}" for hit in hits) + f" | {mean:.3f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=2000, help="images for accuracy, at most")
    given = parser.parse_args()
    for run in given.runs:
        table(run, given.most)
