"""The toy's table: medians and quartiles over seeds, on the terminal, as Markdown and for the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

COLUMNS = {  # key of a result: its head, lower is better, digits
    "gradient_mse": ("Gradient MSE", True, 2),
    "gradient_cs": ("Gradient CS", False, 3),
    "cond_score_cs": ("Cond-Score CS", False, 3),
    "direction_cs": ("Gradient CS, any length", False, 3),
}
TITLES = {
    "truth": "exact posterior",
    "cg": "CG",
    "cg-sc-all": "CG-SC (all)",
    "cg-sc-labeled": "CG-SC (labelled)",
    "cg-dlsm": "CG-DLSM",
    "cg-jem": "CG-JEM",
}
Value = Callable[[dict[str, Any], str], float]
VARIANTS: dict[str, tuple[str, Value]] = {
    "plain": ("", lambda r, column: r["plain"][column]),
    "best": (" + scaling, best λ per column", lambda r, column: r["best"][column]["value"]),
    "one": (" + scaling, one λ", lambda r, column: r["one"][column]),
}


def title(method: str) -> str:
    return TITLES.get(method, method.upper())


@dataclass(frozen=True)
class Row:
    """A method, plain or scaled: per column the median and both quartiles over the seeds."""

    method: str
    variant: str
    label: str
    cells: dict[str, tuple[float, float, float]]  # (median, lower, upper quartile)
    scales: dict[str, float]  # median λ by column

    def written(self, column: str) -> str:
        digits = COLUMNS[column][2]
        middle, low, high = self.cells[column]
        return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def measured(report: dict[str, Any], method: str) -> list[dict[str, Any]]:
    """The method's results on every seed where it did not diverge."""
    return [r for r in report["results"] if r["method"] == method and not r["diverged"]]


def methods_of(report: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(r["method"] for r in report["results"]))


def rows(report: dict[str, Any]) -> list[Row]:
    """Rows in the order of the paper's table; a method that always diverged has none."""
    found = []
    for method in methods_of(report):
        mine = measured(report, method)
        if not mine:
            continue
        for variant, (suffix, value) in VARIANTS.items():
            if method == "truth" and variant != "plain":
                continue  # nothing to gain
            cells = {c: quartiles([value(r, c) for r in mine]) for c in COLUMNS}
            found.append(Row(method, variant, title(method) + suffix, cells, median_scales(mine, variant)))
    return found


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float(middle), float(low), float(high)


def median_scales(results: list[dict[str, Any]], variant: str) -> dict[str, float]:
    if variant == "best":
        return {c: median(r["best"][c]["scale"] for r in results) for c in COLUMNS}
    one = 1.0 if variant == "plain" else median(r["one"]["scale"] for r in results)
    return dict.fromkeys(COLUMNS, one)


def best_cells(table: list[Row]) -> set[tuple[str, str]]:
    """(label, column) of the best median in each column, the exact posterior aside."""
    found = set()
    rivals = [r for r in table if r.method != "truth"]
    for column, (_, lower, _) in COLUMNS.items():
        medians = [r.cells[column][0] for r in rivals]
        top = min(medians) if lower else max(medians)
        found |= {(r.label, column) for r in rivals if r.cells[column][0] == top}
    return found


def wins(report: dict[str, Any], method: str, against: str, variant: str) -> dict[str, tuple[int, int]]:
    """column -> (seeds on which `method` is better than `against`, seeds on which both were measured)."""
    value = VARIANTS[variant][1]
    mine, theirs = ({r["seed"]: r for r in measured(report, m)} for m in (method, against))
    shared = sorted(mine.keys() & theirs.keys())
    counts = {}
    for column, (_, lower, _) in COLUMNS.items():
        ahead = [value(theirs[s], column) - value(mine[s], column) for s in shared]
        counts[column] = (sum(a > 0 if lower else a < 0 for a in ahead), len(shared))
    return counts


def sentences(report: dict[str, Any]) -> list[str]:
    """What the table does not say: who wins how often, how long each was trained, who diverged, what λ means."""
    seeds = len({r["seed"] for r in report["results"]})
    said = [
        f"Medians (quartiles) over {seeds} seed{'s' if seeds > 1 else ''}; each seed draws its own "
        f"{report['examples']} points, of which {report['labels']} are labelled. Bold: the best median of a column, "
        "the exact posterior aside."
    ]
    rivals = [m for m in methods_of(report) if m not in ("truth", "cg")]
    for method in rivals if measured(report, "cg") else []:
        parts = []
        for variant, name in (("plain", "plain"), ("best", "best λ"), ("one", "one λ")):
            counts = wins(report, method, "cg", variant).values()
            parts.append(f"{name} {', '.join(f'{n}/{of}' for n, of in counts)}")
        said.append(f"{title(method)} beats CG on so many seeds, column by column: {'; '.join(parts)}.")
    said.append(
        "Training steps (and CPU seconds, median): "
        + ", ".join(
            f"{title(m)} {mine[0]['steps']} ({median(r['cpu_seconds'] for r in mine):.0f} s)"
            for m in methods_of(report)
            if m != "truth" and (mine := measured(report, m))
        )
        + "."
    )
    for method in methods_of(report):
        lost = sum(1 for r in report["results"] if r["method"] == method and r["diverged"])
        if lost:
            said.append(f"{title(method)} diverged on {lost} of {seeds} seeds, which its medians leave out.")
    said.append(
        "“Best λ per column” is the paper's rule: λ is tuned against the truth, for each column anew. "
        "“One λ” is the λ that minimises the gradient MSE, used in every column."
    )
    said.append(
        "CG-DLSM's frozen score, and the score in Cond-Score CS, are the mixture's exact ones. In Gradient CS a "
        "gradient shorter than 1e-8 counts as vanished (as presumably in the paper), so that even the exact posterior "
        "stays below 1; the last column, not the paper's, compares directions however short the gradients are."
    )
    return said


def markdown(report: dict[str, Any]) -> str:
    table = rows(report)
    best = best_cells(table)
    heads = [f"{head} {'↓' if lower else '↑'}" for head, lower, _ in COLUMNS.values()]
    lines = ["| method | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for row in table:
        cells = [f"**{row.written(c)}**" if (row.label, c) in best else row.written(c) for c in COLUMNS]
        lines.append(f"| {row.label} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {s}" for s in sentences(report))]) + "\n"


def print_table(console: Console, report: dict[str, Any]) -> None:
    table = Table("method", box=None, padding=(0, 1))
    for head, lower, _ in COLUMNS.values():
        table.add_column(f"{head} {'↓' if lower else '↑'}", justify="right")
    shown = rows(report)
    best = best_cells(shown)
    for row in shown:
        cells = [f"[bold]{row.written(c)}[/]" if (row.label, c) in best else row.written(c) for c in COLUMNS]
        table.add_row(row.label, *cells)
    console.print(table)
    for sentence in sentences(report):
        console.print(sentence, highlight=False)
