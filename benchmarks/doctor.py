"""Does the doctor name what was spoiled on purpose, and nothing in a good run?

    python benchmarks/doctor.py --seeds 50,51 --out runs/doctor         # half an hour a seed, on a core of its own
    python benchmarks/doctor.py --seeds 50,51 --out runs/doctor --blind # no label known but those shown
    python benchmarks/doctor.py --seeds 50,51 --out runs/doctor --labels-only  # swapped labels, without any network

Trains on digits six runs of each seed, of which five are spoiled, asks `selfcal doctor` about each, and writes
OUT/doctor.json and OUT/doctor.md (with --blind: doctor-blind.…). What is done is kept: the same command goes on.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import selfcal
from selfcal.core.files import read_json, write_arrays, write_json, write_text
from selfcal.data.labels import reveal
from selfcal.data.sources import load_data
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.diagnosis.findings import FEWEST_SUSPECTS
from selfcal.evaluation.diagnosis.left_out import left_out
from selfcal.experiments.doctor.page import write_page

DIGITS = "builtin:digits"
SWAPPED = 0.1  # of the labels


@dataclass(frozen=True)
class Patient:
    """A run, how it was spoiled, and what should be said first; None of the good ones."""

    name: str
    words: str
    expected: str | None
    method: str = "cg-sc-all"
    labels: str | None = "0.02"
    settings: dict[str, Any] = field(default_factory=dict)
    shares_score: bool = True


PATIENTS = (
    Patient("good", "as the preset says", None, shares_score=False),
    Patient("off", "λ_SC = 0", "calibration-idle", settings={"terms.sc_weight": 0}),
    Patient("short", "1,000 of 12,000 guide steps", "too-short", settings={"classifier.steps": 1000}),
    Patient("few", "cross-entropy, 1 label a class", "too-few-labels", "cg", "1/class"),
    Patient("cond", "cond on 30 labels", "memorising", "cond", shares_score=False),
    Patient("swapped", "10 % labels, 10 % of them swapped", "wrong-labels", labels=None, shares_score=False),
    Patient("good10", "10 % labels, none swapped", None, labels="0.1"),
)


def swapped(out: Path, seed: int) -> tuple[Path, set[int]]:
    """Digits whose few labels are all that is known of the training images, a tenth of them exchanged in pairs; and
    the positions of those."""
    data = load_data(DIGITS)
    _, labels = reveal(data, 0.1, seed)
    order = (labels != UNLABELED).nonzero()[:, 0]
    pool = order[torch.randperm(len(order), generator=torch.Generator().manual_seed(seed))].tolist()
    y, wrong = labels.clone(), set[int]()
    while len(wrong) < round(SWAPPED * len(order)):
        a = pool.pop(0)
        b = next(p for p in pool if labels[p] != labels[a])
        pool.remove(b)
        y[a], y[b] = labels[b], labels[a]
        wrong |= {a, b}
    file = out / f"swapped-{seed}.npz"
    if not file.exists():
        parts = {"x": data.x, "y": y, "x_test": data.x_test, "y_test": data.y_test}
        write_arrays(file, {name: np.asarray(part) for name, part in parts.items()})
    return file, wrong


def trained(patient: Patient, seed: int, out: Path) -> selfcal.Run:
    data, preset = DIGITS, None
    if patient.name == "swapped":
        data, preset = str(swapped(out, seed)[0]), "digits"
    return selfcal.train(
        data, patient.method, patient.labels, out / f"{patient.name}-{seed}", seed=seed, preset=preset,
        score=out / f"good-{seed}" if patient.shares_score else None,
        settings={"run.preview_every": 0} | patient.settings, show_progress=True,
    )  # fmt: skip


def examined(patient: Patient, seed: int, out: Path, blind: bool) -> dict[str, Any]:
    """What the doctor says of a run, kept as a file; of swapped labels also how many suspects are right."""
    file = out / f"{patient.name}-{seed}{'-blind' if blind else ''}.json"
    if not file.exists():
        run = trained(patient, seed, out)
        found = run.diagnose(held_out=not blind, show_progress=True).in_json()
        write_page(run.path)
        places = [s["position"] for s in found["measured"]["suspects"]["found"]]
        wrong = swapped(out, seed)[1] if patient.name == "swapped" else set()
        about = {"patient": patient.name, "seed": seed, "expected": patient.expected, "blind": blind}
        about |= {"suspects": len(places), "right": len(wrong & {*places}), "wrong_labels": len(wrong)}
        write_json(file, about | {key: found[key] for key in ("findings", "notes", "measured")})
    result: dict[str, Any] = read_json(file)
    return result


def suspected(out: Path, seed: int) -> str:
    """Swapped labels and those of the same seed before they were, judged by each other, which takes no network."""
    file, wrong = swapped(out, seed)
    data = load_data(str(file))
    found, fine = left_out(data, data.y), left_out(load_data(DIGITS), reveal(load_data(DIGITS), 0.1, seed)[1])
    places = found.places[found.suspects].tolist()
    right, is_found = len(wrong & {*places}), len(places) >= FEWEST_SUSPECTS
    return (
        f"| {seed} | {right} of {len(places)} | {right / max(1, len(places)):.2f} | {len(wrong)} | "
        f"{'yes' if is_found else '**NO**'} | {len(fine.suspects)} |"
    )


def row(patient: Patient, found: dict[str, Any]) -> str:
    findings = found["findings"]
    first = findings[0] if findings else None
    says = (first["name"] if first else None) == patient.expected
    others = ", ".join(f["name"] for f in findings[1:]) or "–"
    number = f"{first['name']}: {first['number']}" if first else "nothing"
    if found["wrong_labels"]:
        number += (
            f" — {found['right']} of {found['suspects']} suspects are swapped (precision "
            f"{found['right'] / max(1, found['suspects']):.2f}), of {found['wrong_labels']} swapped labels"
        )
    return f"| {found['seed']} | {patient.words} | {number} | {others} | {'yes' if says else '**NO**'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/doctor"))
    parser.add_argument("--seeds", default="50", help="separated by commas")
    parser.add_argument("--patients", default=",".join(p.name for p in PATIENTS), help="separated by commas")
    parser.add_argument("--blind", action="store_true", help="no class is known but those that a method was shown")
    parser.add_argument("--labels-only", action="store_true", help="only which labels are doubted; nothing is trained")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if options.labels_only:
        print("| seed | suspects that are swapped | precision | swapped | a finding | suspects where none is |")
        print("|---|---|---|---|---|---|")
        for seed in map(int, options.seeds.split(",")):
            print(suspected(options.out, seed), flush=True)
        return
    asked, results, lines = options.patients.split(","), [], []
    for seed in map(int, options.seeds.split(",")):
        for patient in PATIENTS:
            if patient.name in asked:
                results.append(examined(patient, seed, options.out, options.blind))
                lines.append(row(patient, results[-1]))
                print(lines[-1], flush=True)
    name = "doctor-blind" if options.blind else "doctor"
    write_json(options.out / f"{name}.json", results)
    head = [
        "| seed | spoiled by | first finding, and its number | further findings | as it should be |",
        "|---|---|---|---|---|",
    ]
    write_text(options.out / f"{name}.md", "\n".join([*head, *lines]) + "\n")
    met = sum("**NO**" not in line for line in lines)
    print(f"{met} of {len(lines)} as they should be")


if __name__ == "__main__":
    main()
