"""Networks as generators by themselves, as in the paper's appendix: the score model, and classifiers as energies."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from selfcal.core.escapes import markdown
from selfcal.core.reading import as_written, read_arrays
from selfcal.diffusion.pictures import grid, png
from selfcal.experiments.compare.grid import Grid
from selfcal.experiments.compare.records import AGAIN
from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.tasks import Cell
from selfcal.report.columns import ALONE
from selfcal.report.pictures import data_uri

NAMES = {
    "unconditional": "the score model",
    "classifier-only-unconditional": "∇ logsumexp f, no class asked for",
    "classifier-only": "∇ f_y, a class asked for",
}


def alone(comparison: Grid, summary: Summary) -> list[dict[str, Any]]:
    """A row for each method, choice of labels and way of using its networks: means over seeds, and pictures."""
    rows = []
    for method in summary.methods:
        for labels in summary.labels:
            outcomes = [o for o in summary.outcomes if (o["method"], o["labels"]) == (method, labels)]
            for guide, name in NAMES.items():
                results = [r for o in outcomes for r in o.get("alone", ()) if r["guide"] == guide]
                if results:
                    file = Cell(method, labels, summary.seeds[0]).pictures(comparison.out)
                    cells = [column.written(mean(results, column.key)) for column in ALONE]
                    rows.append(
                        {"method": method, "labels": labels, "name": name, "cells": cells} | picture(file, guide)
                    )
    return rows


def mean(results: list[dict[str, Any]], key: str) -> float | None:
    values = [r[key] for r in results if r.get(key) is not None]
    return fmean(values) if values else None


def picture(file: Path, guide: str) -> dict[str, str | None]:
    if not file.exists():
        return {"uri": None}
    name = f"{guide} images"
    arrays = read_arrays(file, (name,))
    with as_written(file, "selfcal compare", AGAIN):
        return {"uri": data_uri(png(grid(arrays[name], enlarge=1, gap=1))) if name in arrays else None}


def in_markdown(rows: list[dict[str, Any]]) -> str:
    """The same as a table, without pictures; nothing where no network was tried alone."""
    if not rows:
        return ""
    heads = ["method", "labels", "generator", *(column.title for column in ALONE)]
    lines = ["### Networks alone\n", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join([markdown(r['method']), markdown(r['labels']), r['name'], *r['cells']])} |" for r in rows]
    return "\n".join(lines) + "\n\n"
