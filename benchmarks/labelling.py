"""What twenty clicks are worth: labels that the app suggests, against as many at random, and against the least sure.

    python benchmarks/labelling.py --out runs/labelling             # see docs/results/labelling.md for how long
    python benchmarks/labelling.py --out runs/labelling --quick     # does it go through?

Digits, one label per class. The app's own stack of cards asks for twenty images and is answered with their true
classes; the table that it saves is what `train --labels` gets. Every guide is then judged on test images. Writes
OUT/labelling.json and OUT/labelling.md; what is done is kept, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import selfcal
from selfcal.app.labelling import Card, Labelling, rows
from selfcal.core.files import write_json, write_text
from selfcal.core.progress import bar
from selfcal.data.label_files import as_table
from selfcal.evaluation.guide import Subject, guide_by_sigma
from selfcal.evaluation.opinion import opinions
from selfcal.evaluation.suggestion import doubt

CLICKS = 20
SEEDS = (0, 1, 2, 3, 4)
SIGMA = 0.5  # of the second column: about there guidance decides what a digit becomes
ALWAYS: dict[str, Any] = {"score.steps": 1, "run.preview_every": 0}  # no score model is needed to judge a guide
SMALL: dict[str, Any] = {
    "classifier.width": 128,
    "classifier.blocks": 2,
    "classifier.batch": 64,
    "classifier.steps": 2000,
    "classifier.lr": 0.003,
}
WHOLE: dict[str, Any] = {"classifier.steps": 6000, "classifier.lr": 0.002}  # half the preset's steps, at twice its rate

NAMES = {
    "none": "1 per class",
    "random": f"and {CLICKS} at random",
    "app": f"and {CLICKS} that the app suggests",
    "least sure": f"and the {CLICKS} it is least sure of",
}

Chooser = Callable[[selfcal.Run, int], list[int]]


def by_the_app(run: selfcal.Run, seed: int) -> list[int]:
    cards = Labelling().with_suggestions(run, CLICKS).cards
    return [card.place for card in cards if card.place is not None]


def at_random(run: selfcal.Run, seed: int) -> list[int]:
    free = run.pool.unlabelled
    order = torch.randperm(len(free), generator=torch.Generator().manual_seed(seed))
    return free[order[:CLICKS]].tolist()


def least_sure(run: selfcal.Run, seed: int) -> list[int]:
    """Those with the largest doubt, whatever they look like."""
    unsure = doubt(opinions(run.generator, run.data.x, [0.1, 0.2, 0.5, 1.0], 4).mean(0))
    return unsure.masked_fill(run.pool.y != -1, -1).topk(CLICKS).indices.tolist()


RULES: dict[str, Chooser] = {"random": at_random, "app": by_the_app, "least sure": least_sure}


def labelled(run: selfcal.Run, places: Sequence[int], path: Path) -> Path:
    """The table that the app would save, had somebody clicked the true class of each."""
    truth: Tensor = run.data.y
    cards = [Card(run.data.x[i : i + 1], i, int(truth[i])) for i in places]
    write_text(path, as_table(rows(run, cards)))
    return path


def quality(run: selfcal.Run) -> dict[str, float]:
    table = guide_by_sigma(Subject(run.generator, run.data, run.pool.y, {}))
    noisy = min(table, key=lambda row: abs(row["sigma"] - SIGMA))
    return {"labels": len(run.pool.labelled), "accuracy": table[0]["accuracy"], "noisy": noisy["accuracy"]}


def trained(out: Path, labels: str | Path, seed: int, settings: dict[str, Any]) -> selfcal.Run:
    return selfcal.train("digits", "cg-sc-all", str(labels), out, seed=seed, settings=settings)


def measured(out: Path, seeds: Sequence[int], rules: Sequence[str], settings: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    with bar("guides", len(seeds) * (1 + len(rules))) as tick:
        for rule in ("none", *rules):
            for seed in seeds:
                first = trained(out / f"{seed}-first", "1/class", seed, settings)
                run = first if rule == "none" else trained_on(first, rule, seed, out, settings)
                found.append({"seed": seed, "rule": rule, **quality(run)})
                tick(1, f"seed {seed}, {rule}: {found[-1]['accuracy']:.3f}")
                write_json(out / "labelling.json", {"settings": settings, "guides": found})
    return found


def trained_on(first: selfcal.Run, rule: str, seed: int, out: Path, settings: dict[str, Any]) -> selfcal.Run:
    """With twenty more labels, chosen by what the first run knows."""
    name = f"{seed}-{rule.replace(' ', '-')}"
    table = out / f"{name}.csv"
    if not table.exists():
        labelled(first, RULES[rule](first, seed), table)
    return trained(out / name, table, seed, settings)


def table_of(found: Sequence[dict[str, Any]]) -> str:
    """A row per rule: accuracy on clean test images of every seed, their median, and the median at SIGMA."""
    seeds = sorted({row["seed"] for row in found})
    lines = ["| labels | " + " | ".join(f"seed {s}" for s in seeds) + f" | median | median at σ ≈ {SIGMA:g} |"]
    lines.append("|---|" + "---|" * (len(seeds) + 2))
    for rule in dict.fromkeys(row["rule"] for row in found):
        mine = sorted((row for row in found if row["rule"] == rule), key=lambda row: row["seed"])
        clean, noisy = ([row[key] for row in mine] for key in ("accuracy", "noisy"))
        name = NAMES.get(rule, rule)
        values = " | ".join(f"{v:.3f}" for v in [*clean, statistics.median(clean), statistics.median(noisy)])
        lines.append(f"| {name} | {values} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/labelling"))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="separated by commas")
    parser.add_argument("--whole", action="store_true", help="the preset's network; ten times the work")
    parser.add_argument("--rules", default=",".join(RULES), help="separated by commas")
    parser.add_argument("--quick", action="store_true", help="one seed, 20 steps")
    asked = parser.parse_args()
    seeds = [0] if asked.quick else [int(s) for s in asked.seeds.split(",")]
    settings = ALWAYS | (WHOLE if asked.whole else SMALL) | ({"classifier.steps": 20} if asked.quick else {})
    found = measured(asked.out, seeds, asked.rules.split(","), settings)
    write_text(asked.out / "labelling.md", table_of(found))
    print(table_of(found))
    print(json.dumps({"clicks": CLICKS, "seeds": seeds}))


if __name__ == "__main__":
    main()
