"""The toy's table: medians and quartiles over seeds, on the terminal, as Markdown and for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from selfcal.core import escapes
from selfcal.report.columns import COLUMNS, GRADIENTS

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

    def written(self, key: str) -> str:
        middle, low, high = (COLUMNS[key].written(value) for value in self.cells[key])
        return f"{middle} ({low}–{high})"


def measured(report: dict[str, Any], method: str) -> list[dict[str, Any]]:
    """The method's results on every seed where it did not diverge."""
    return [r for r in report["results"] if r["method"] == method and not r["diverged"]]


def methods_of(report: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(r["method"] for r in report["results"]))


def rows(report: dict[str, Any]) -> list[Row]:
    """Rows in the order of the paper's table; a method that always diverged has none."""
    table = []
    for method in methods_of(report):
        results = measured(report, method)
        for variant, (suffix, value) in VARIANTS.items() if results else ():
            if method == "truth" and variant != "plain":
                continue  # nothing to gain
            cells = {c.key: quartiles([value(r, c.key) for r in results]) for c in GRADIENTS}
            table.append(Row(method, variant, title(method) + suffix, cells, median_scales(results, variant)))
    return table


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float(middle), float(low), float(high)


def median_scales(results: list[dict[str, Any]], variant: str) -> dict[str, float]:
    if variant == "best":
        return {c.key: median(r["best"][c.key]["scale"] for r in results) for c in GRADIENTS}
    one = 1.0 if variant == "plain" else median(r["one"]["scale"] for r in results)
    return {c.key: one for c in GRADIENTS}


def best_cells(table: list[Row]) -> set[tuple[str, str]]:
    """(label, column) of the best median in each column, the exact posterior aside."""
    rivals = [r for r in table if r.method != "truth"]
    tops = {c.key: c.best([r.cells[c.key][0] for r in rivals]) for c in GRADIENTS}
    return {(r.label, key) for r in rivals for key, top in tops.items() if r.cells[key][0] == top}


def wins(report: dict[str, Any], method: str, against: str, variant: str) -> dict[str, tuple[int, int]]:
    """column -> (seeds on which `method` is better than `against`, seeds on which both were measured)."""
    value = VARIANTS[variant][1]
    ours, theirs = ({r["seed"]: r for r in measured(report, m)} for m in (method, against))
    seeds = sorted(ours.keys() & theirs.keys())
    leads = {c.key: [c.sign * (value(ours[s], c.key) - value(theirs[s], c.key)) for s in seeds] for c in GRADIENTS}
    return {key: (sum(lead > 0 for lead in column), len(seeds)) for key, column in leads.items()}


def markdown(report: dict[str, Any]) -> str:
    table = rows(report)
    heads = [c.title for c in GRADIENTS]
    lines = ["| method | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| {in_markdown(row)} | " + " | ".join(marked(row, table, "**{}**")) + " |" for row in table]
    return "\n".join([*lines, "", *(f"- {s}" for s in sentences(report))]) + "\n"


def in_markdown(row: Row) -> str:
    """Its name; one of the table's own is as it is."""
    return row.label if row.method in TITLES else escapes.markdown(row.label)


def print_table(console: Console, report: dict[str, Any]) -> None:
    lines, table = rows(report), Table("method", box=None, padding=(0, 1))
    for column in GRADIENTS:
        table.add_column(column.title, justify="right")
    for row in lines:
        table.add_row(row.label, *map(Text.from_markup, marked(row, lines, "[bold]{}[/]")))
    console.print(table)
    for sentence in sentences(report):
        console.print(sentence)


def marked(row: Row, table: list[Row], bold: str) -> list[str]:
    """The cells of a row of the table, the best of a column in bold."""
    best = best_cells(table)
    return [(bold if (row.label, c.key) in best else "{}").format(row.written(c.key)) for c in GRADIENTS]


def sentences(report: dict[str, Any]) -> list[str]:
    """What the table does not say: who wins how often, how long each was trained, who diverged, what λ means."""
    seeds = len({r["seed"] for r in report["results"]})
    return [
        f"Medians (quartiles) over {seeds} seed{'s' if seeds > 1 else ''}; each seed draws its own "
        f"{report['examples']} points, of which {report['labels']} are labelled. Bold: the best median of a column, "
        "the exact posterior aside.",
        *wins_in_words(report),
        f"Training steps (and CPU seconds, median): {costs_in_words(report)}.",
        *losses_in_words(report, seeds),
        "“Best λ per column” is the paper's rule: λ is tuned against the truth, for each column anew. "
        "“One λ” is the λ that minimises the gradient MSE, used in every column.",
        "CG-DLSM's frozen score, and the score in Cond-Score CS, are the mixture's exact ones. In Gradient CS a "
        "gradient shorter than 1e-8 counts as vanished (as presumably in the paper), so that even the exact posterior "
        "stays below 1; the last column, not the paper's, compares directions however short the gradients are.",
    ]


def wins_in_words(report: dict[str, Any]) -> list[str]:
    """Of each rival against plain guidance, where that was measured."""
    rivals = [m for m in methods_of(report) if m not in ("truth", "cg")] if measured(report, "cg") else []
    lines = []
    for method in rivals:
        parts = []
        for variant, name in (("plain", "plain"), ("best", "best λ"), ("one", "one λ")):
            counts = wins(report, method, "cg", variant).values()
            parts.append(f"{name} {', '.join(f'{n}/{of}' for n, of in counts)}")
        lines.append(f"{title(method)} beats CG on so many seeds, column by column: {'; '.join(parts)}.")
    return lines


def costs_in_words(report: dict[str, Any]) -> str:
    trainings = {m: measured(report, m) for m in methods_of(report) if m != "truth"}
    return ", ".join(
        f"{title(m)} {results[0]['steps']} ({median(r['cpu_seconds'] for r in results):.0f} s)"
        for m, results in trainings.items()
        if results
    )


def losses_in_words(report: dict[str, Any], seeds: int) -> list[str]:
    """Who diverged how often."""
    lost = Counter(r["method"] for r in report["results"] if r["diverged"])
    return [
        f"{title(m)} diverged on {lost[m]} of {seeds} seeds, which its medians leave out."
        for m in methods_of(report)
        if lost[m]
    ]
