"""Folders of results as selfcal writes them, made by hand: small, and without a training."""

from __future__ import annotations

import json

import numpy as np

from selfcal.core.files import write_arrays
from selfcal.core.settings import Settings
from selfcal.metrics.gradients import paper_grid
from selfcal.report.columns import GRADIENTS

NUMBERS = {"intra_fid": 20.0, "fid": 5.0, "kid": 0.1, "density": 1.0, "coverage": 0.9, "intra_density": 1.0}
NUMBERS |= {"intra_coverage": 0.9, "inception_score": 5.0, "accuracy": 0.9, "ece": 0.1, "guide_accuracy": 0.8}
RESULT = NUMBERS | {
    "samples": 100,
    "biased": True,
    "k": 5,
    "features": "identity",
    "features_sha256": "f" * 64,
    "distance": "FID",
    "reference": "train",
    "reference_sha256": "r" * 64,
    "reference_examples": 100,
    "reference_per_class": 20,
    "sampler": "heun",
    "evaluations": 9,
    "sc_fraction": 0.7,
    "agreement": None,
    "chosen": True,
    "scale": 1.0,
    "intervals": {"intra_fid": [19.0, 21.0]},
    "interval_method": "jackknife",
}
PICTURES = {"images": np.zeros((2, 3, 1, 4, 4), np.float32), "unconditional images": np.ones((2, 3, 1, 4, 4))}


TOY = {"labels": 60, "settings": Settings().model_dump(mode="json"), "own_steps": {"cg-jem": 3}}


def put(file, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), "utf-8")


def outcome(method, labels, seed=0):
    about = {"method": method, "labels": labels, "seed": seed}
    selection = [NUMBERS | {"scale": s} for s in (0.5, 1.0)]
    alone = [NUMBERS | {"guide": "unconditional", "method": method}]
    done = {"state": "done", "seconds": {"training": 3.0, "evaluation": 1.0}, "diverged": None}
    return about | done | {"results": [RESULT | about | {"labelled": 10}], "selection": selection, "alone": alone}


def comparison(out, labels="0.02", methods=("cg", "cg-sc-all"), command="selfcal compare digits"):
    """compare.json, and a cell for each method."""
    from selfcal.experiments.compare.tasks import Cell

    protocol = {"data": "digits", "data_sha256": "d", "preset": "digits", "samples": 100, "score_labels": labels}
    protocol |= {"settings": Settings().model_dump(mode="json"), "scales": "wide", "how_read": {}}
    invocations = [{"command": command, "jobs": 2, "seconds": 60}]
    cells = [[method, labels, 0] for method in methods]
    put(out / "compare.json", {"protocol": protocol, "cells": cells, "invocations": invocations})
    for method in methods:
        cell = Cell(method, labels, 0)
        put(cell.outcome(out), outcome(method, labels))
        write_arrays(cell.pictures(out), PICTURES)
    write_arrays(out / "data.npz", {"classes": np.array(["a", "b"]), "images": PICTURES["images"]})
    return out


def toy(out):
    """toy.json, results.json and the fields of one seed."""
    errors = {c.key: 0.5 for c in GRADIENTS}
    best = {c.key: {"value": 0.5, "scale": 1.0} for c in GRADIENTS}
    numbers = {"plain": errors, "best": best, "one": errors | {"scale": 1.0}, "paths_right": 0.5}
    results, grid = [], paper_grid().numpy()
    for method in ("truth", "cg", "cg-sc-all"):
        about = {"method": method, "seed": 0, "steps": 3, "diverged": None, "seconds": 1.0, "cpu_seconds": 1.0}
        results.append(about | {"losses": {"ce": 1.0}} | numbers)
        put(out / "seeds" / "0000" / f"{method}.json", results[-1])
        arrays = {"field": np.ones((2, len(grid), 2), np.float32), "paths": np.zeros((3, 200, 2), np.float32)}
        if method == "truth":
            arrays |= {"x": np.zeros((9, 2)), "y": np.arange(9) % 2, "seen": np.arange(9) % 3 - 1, "grid": grid}
        write_arrays(out / "seeds" / "0000" / f"{method}.npz", arrays)
    settings = Settings().model_dump(mode="json")
    put(out / "toy.json", TOY)
    put(out / "results.json", {"labels": 60, "examples": 2000, "settings": settings, "results": results})
    return out


def demo(out):
    """results.json, guides.json and pictures.npz."""
    rivals = ("cg", "cg-sc-all")
    rows = [RESULT | {"method": m, "labels": "0.02", "labelled": 30, "seed": 0} for m in rivals]
    put(out / "results.json", rows)
    levels = [{"sigma": s, "accuracy": 0.9, "ece": 0.1} for s in (0.1, 1.0, 10.0)]
    put(out / "guides.json", {"guides": dict.fromkeys(rivals, levels), "seconds": 3})
    images = np.zeros((2, 3, 1, 4, 4), np.float32)
    arrays = {"real": images, "labelled": images, **dict.fromkeys(rivals, images)}
    write_arrays(out / "pictures.npz", arrays | {f"{m} missed": np.zeros((2, 3), bool) for m in rivals})
    return out
