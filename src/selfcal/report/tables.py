"""Results of a run as a table on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from selfcal.core.comparable import check_comparable
from selfcal.report.columns import COLUMNS, EVALUATION


def print_results(console: Console, results: list[dict[str, Any]], title: str, strength: str = "λ") -> None:
    """A row per result, if all were measured alike; what they mean below. * marks the chosen λ.

    strength: what the guidance scale is called, λ or (of classifier-free guidance) w.
    """
    check_comparable(results)
    table = Table(title=title, box=None, padding=(0, 1))
    for head in ("\nmethod", f"\n{strength}"):
        table.add_column(head, no_wrap=True)
    shown = [c for c in EVALUATION if c.key != "agreement" or any(r.get(c.key) is not None for r in results)]
    for column in shown:  # a longer name than FID is explained below: a terminal is narrow
        head = column.narrow if distance(results[0]) == "FID" else column.narrow.replace("FID", "FD")
        table.add_column(head, justify="right", no_wrap=True)
    for r in results:
        cells = [column.written(r.get(column.key)) for column in shown]
        cells[0] += reach(r)
        mark = " *" if r["chosen"] and len(results) > 1 else ""
        table.add_row(r["method"], f"{r['scale']:g}{mark}", *cells)
    console.print(table)
    console.print(meaning(results[0]))


def meaning(r: dict[str, Any]) -> str:
    """How the numbers were made: without it they compare with nothing."""
    words = (
        f"{r['samples']} samples, {r['sampler']} with {r['evaluations']} evaluations, k={r['k']}, "
        f"features {r['features']} {r['features_sha256'][:12]}, reference: {r['reference']}"
    )
    if distance(r) != "FID":
        words += f", FD: {distance(r)}"
    if r["intervals"]:
        words += ", ±: 95 % interval"
    if r.get("reference_of_classes") == "test":
        words += f", of each class: {r['reference_per_class']} or more test images"
    if r.get("agreement") is not None:
        words += "; agreement: samples in which a linear classifier of the given labels sees the class asked for"
    if r["intra_fid"] is None:
        words += f"; intra-metrics need more than the {r['reference_per_class']} known images of a class"
    if r["biased"]:
        words += "; fewer than 2048 samples: distances are biased upwards"
    return words


def distance(result: dict[str, Any]) -> str:
    """What its Fréchet distance is called; only Inception's is an FID."""
    return str(result.get("distance", "FID"))


def reach(result: dict[str, Any]) -> str:
    """±half of the interval of the intra-FID, where there is one."""
    interval = (result["intervals"] or {}).get("intra_fid")
    return "" if interval is None else f" ±{COLUMNS['intra_fid'].written((interval[1] - interval[0]) / 2)}"
