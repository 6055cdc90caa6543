"""The paper's tables, as text, for the page and on the terminal. Bold and underline are computed, never typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from selfcal.core import escapes
from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.variants import base
from selfcal.methods.table import GUIDED, METHODS
from selfcal.report.columns import CALIBRATION, COMPARISON, RESULTS, SAMPLE_QUALITY, WITHIN_CLASSES, Column

Mark = Callable[[str, bool, bool], str]
"""(number, is it the best of all, is it the best of the CG family) -> the number as it is printed."""

Named = Callable[[str], str]
"""An escape of core/escapes.py, or none where everything is escaped later."""

INTERVAL = (
    "± is half a 95 % interval: Student's t over the seeds, or where all have but one seed "
    "the jackknife over its samples"
)


def marker(underline: str, bold: str) -> Mark:
    """How one format underlines the best of the CG family and prints the best of all in bold."""

    def mark(text: str, first: bool, family: bool) -> str:
        text = underline.format(text) if family else text
        return bold.format(text) if first else text

    return mark


rich_mark = marker("[underline]{}[/]", "[bold]{}[/]")
markdown_mark = marker("<u>{}</u>", "**{}**")
html_mark = marker("<u>{}</u>", "<b>{}</b>")


def cells(summary: Summary, column: Column, labels: str, mark: Mark, intervals: bool = True) -> dict[str, str]:
    """A column: method -> "25.7 ± 3.1", marked if best of all or best of the CG family.

    intervals: with them, and with what is missing to a full number of seeds.
    """
    most, guided = len(summary.seeds), [m for m in summary.methods if m in GUIDED]
    first, family = (summary.best(methods, labels, column) for methods in (summary.methods, guided))
    texts = {}
    for method in summary.methods:
        estimate = summary.estimate(method, labels, column)
        if estimate is None:
            texts[method] = "–" if summary.of(method, labels) else summary.trouble(method, labels)
            continue
        text = mark(column.written(estimate.mean), method in first, method in family)
        alike = estimate.seeds > 1 or most == 1  # the spread of samples does not stand beside that of seeds
        if intervals and alike and estimate.reach is not None:
            text += f" ± {column.written(estimate.reach)}"
        if intervals and estimate.seeds < most:
            text += f" ({seeds_in_words(summary, method, labels, estimate.seeds)})"
        texts[method] = text
    return texts


def seeds_in_words(summary: Summary, method: str, labels: str, seeds: int) -> str:
    """ "2 seeds, 1 diverged"."""
    lost = [f"{count} {state}" for state, count in summary.lost(method, labels).items()]
    return ", ".join([f"{seeds} seed{'s' if seeds > 1 else ''}", *lost])


def labels_in_words(summary: Summary, labels: str, named: Named = str) -> str:
    """ "0.02" -> "2 %: 30 labels". named: how the medium takes words of others."""
    count = summary.labelled.get(labels)
    try:
        text = f"{100 * float(labels):g} %"
    except ValueError:
        text = named(labels)
    return text if count is None else f"{text}: {count} labels"


def scales(summary: Summary, labels: str) -> dict[str, str]:
    """The chosen λ (or w) of each seed; nothing where there is nothing to choose."""
    texts = {m: ", ".join(f"{r['scale']:g}" for r in summary.of(m, labels)) for m in summary.methods}
    return {m: (text if len(METHODS[base(m)].grid("paper")) > 1 else "") or "–" for m, text in texts.items()}


def all_in_markdown(summary: Summary, notes: Sequence[str]) -> str:
    """Every table, one for each choice of labels, and what the numbers mean."""
    parts, columns = [], (*SAMPLE_QUALITY, *WITHIN_CLASSES, *CALIBRATION)
    heads = [*(column.title for column in columns), "λ or w"]
    for y in summary.labels:
        parts.append(f"### {labels_in_words(summary, y, escapes.markdown)}\n")
        texts = [cells(summary, column, y, markdown_mark) for column in columns] + [scales(summary, y)]
        lines = ["| method | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        lines += [f"| {escapes.markdown(m)} | " + " | ".join(text[m] for text in texts) + " |" for m in summary.methods]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) + "\n" + "\n".join(f"- {note}." for note in notes) + "\n"


def quality_html(summary: Summary, labels: str) -> dict[str, Any]:
    """Heads, and a row of marked cells for each method, with one choice of labels."""
    columns = (*SAMPLE_QUALITY, *WITHIN_CLASSES)
    texts = [cells(summary, column, labels, html_mark) for column in columns] + [scales(summary, labels)]
    heads = [*(column.title for column in columns), "λ or w"]
    return {"heads": heads, "rows": {m: [text[m] for text in texts] for m in summary.methods}}


def calibration_html(summary: Summary) -> dict[str, Any]:
    """The same of the guides themselves, columns for each choice of labels; methods without a guide are left out."""
    texts = [cells(summary, column, y, html_mark) for y in summary.labels for column in CALIBRATION]
    guides = [m for m in summary.methods if any(summary.estimate(m, y, CALIBRATION[0]) for y in summary.labels)]
    heads = [f"{column.title}, {labels_in_words(summary, y)}" for y in summary.labels for column in CALIBRATION]
    return {"heads": heads, "rows": {m: [text[m] for text in texts] for m in guides}}


def table_csv(summary: Summary) -> str:
    """A line per method, choice of labels and metric, with everything a plot needs."""
    rows = [["method", "labels", "labelled", "metric", "mean", "half_interval_95", "seeds", "values", "scales"]]
    for method in summary.methods:
        for y in summary.labels:
            results = summary.of(method, y)
            strengths, seeds = " ".join(f"{r['scale']:g}" for r in results), " ".join(str(r["seed"]) for r in results)
            for column in RESULTS:
                estimate = summary.estimate(method, y, column)
                if estimate is not None:
                    values = " ".join(f"{v:.6g}" for v in estimate.values)
                    reach = "" if estimate.reach is None else f"{estimate.reach:.6g}"
                    head = [method, y, str(summary.labelled[y]), column.key, f"{estimate.mean:.6g}", reach]
                    rows.append([*head, seeds, values, strengths])
    return escapes.table(rows)


def print_tables(console: Console, summary: Summary) -> None:
    """The main table on the terminal, one for each choice of labels, with as many columns as there is room for."""
    for y in summary.labels:
        candidates = [terminal_table(summary, y, COMPARISON[:n]) for n in range(len(COMPARISON), 0, -1)]
        unbounded = console.options.update(width=1000)
        narrow = (t for t in candidates if console.measure(t, options=unbounded).maximum <= console.width)
        console.print(next(narrow, candidates[-1]))
    console.print(INTERVAL)


def terminal_table(summary: Summary, labels: str, columns: Sequence[Column]) -> Table:
    table = Table(title=labels_in_words(summary, labels), box=None, padding=(0, 1))
    table.add_column("method", no_wrap=True, min_width=max(map(len, summary.methods)))
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    # the others' intervals are in table.md: a terminal is narrow
    texts = [cells(summary, c, labels, rich_mark, intervals=c == columns[0]) for c in columns]
    for method in summary.methods:
        table.add_row(method, *(Text.from_markup(text[method]) for text in texts))
    return table
