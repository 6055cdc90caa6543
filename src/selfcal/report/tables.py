"""Results as tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from selfcal.methods.table import find
from selfcal.metrics import check_comparable

COLUMNS = {  # key of a result: its head
    "intra_fid": "intra\nFID",
    "fid": "\nFID",
    "density": "\nden",
    "coverage": "\ncov",
    "intra_density": "intra\nden",
    "intra_coverage": "intra\ncov",
    "accuracy": "gen.\nacc",
    "ece": "guide\nECE",
}


def print_results(console: Console, results: list[dict[str, Any]], title: str) -> None:
    """A row per result, if all were measured alike; what they mean below. * marks the chosen λ."""
    check_comparable(results)
    strength = "λ" if find(results[0]["method"]).guide == "classifier" else "w"  # of classifier-free guidance
    table = Table(title=escape(title), box=None, padding=(0, 1))
    distance = results[0].get("distance", "FID")
    for head in ("\nmethod", f"\n{strength}"):
        table.add_column(head, no_wrap=True)
    for head in COLUMNS.values():  # a longer name than FID is explained below: a terminal is narrow
        table.add_column(head if distance == "FID" else head.replace("FID", "FD"), justify="right", no_wrap=True)
    for r in results:
        cells = ["–" if r[c] is None else f"{r[c]:.1f}" if "fid" in c else f"{r[c]:.3f}" for c in COLUMNS]
        cells[0] += reach(r)
        mark = " *" if r["chosen"] and len(results) > 1 else ""
        table.add_row(r["method"], f"{r['scale']:g}{mark}", *cells)
    console.print(table)
    r = results[0]
    console.print(
        f"{r['samples']} samples, {r['sampler']} with {r['evaluations']} evaluations, k={r['k']}, "
        f"features {r['features']} {r['features_sha256'][:12]}, reference: {r['reference']}"
        + ("" if distance == "FID" else f", FD: {distance}")
        + (", ±: 95 % interval" if r["intervals"] else "")
        + (
            ""
            if r["intra_fid"] is not None
            else f"; intra-metrics need more than the {r['reference_per_class']} known images of a class"
        )
        + ("; fewer than 2048 samples: distances are biased upwards" if r["biased"] else ""),
        highlight=False,
    )


def reach(result: dict[str, Any]) -> str:
    """±half of the interval of the intra-FID, where there is one."""
    found = (result["intervals"] or {}).get("intra_fid")
    return "" if found is None else f" ±{(found[1] - found[0]) / 2:.1f}"
