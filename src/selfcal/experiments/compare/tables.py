"""The paper's tables as Markdown, LaTeX and CSV. Bold and underline are computed, never typed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from selfcal.experiments.compare.summary import HEADS, LOWER_IS_BETTER, Summary, digits_of
from selfcal.methods.table import GUIDED, METHODS

TABLES = {  # title: its metrics
    "Sample quality": ("intra_fid", "fid", "density", "coverage"),
    "Sample quality within classes": ("intra_density", "intra_coverage", "accuracy", "inception_score"),
    "Calibration of the guide": ("ece",),
}

QUALITY = ("Sample quality", "Sample quality within classes")

Mark = Callable[[str, bool, bool], str]
"""(number, is it the best of all, is it the best of the CG family) -> the number as it is printed."""

TERMINAL = ("intra_fid", "fid", "density", "coverage", "accuracy", "ece")
INTERVAL = (
    "± is half a 95 % interval: Student's t over the seeds, or where all have but one seed "
    "the jackknife over its samples"
)


def head(metric: str) -> str:
    return f"{HEADS[metric]} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


def guided(summary: Summary) -> list[str]:
    return [m for m in summary.methods if m in GUIDED]


def cells(summary: Summary, metric: str, labels: str, mark: Mark, intervals: bool = True) -> dict[str, str]:
    """A column: method -> "25.7 ± 3.1", marked if best of all or best of the CG family.

    intervals: with them, and with what is missing to a full number of seeds.
    """
    digits, most = digits_of(metric), len(summary.seeds)
    first = summary.best(summary.methods, labels, metric, digits)
    family = summary.best(guided(summary), labels, metric, digits)
    column = {}
    for method in summary.methods:
        found = summary.estimate(method, labels, metric)
        if found is None:
            column[method] = "–" if summary.of(method, labels) else summary.trouble(method, labels)
            continue
        alike = found.seeds > 1 or most == 1  # the spread of samples does not stand beside that of seeds
        reach = f" ± {found.reach:.{digits}f}" if intervals and alike and found.reach is not None else ""
        few = f" ({seeds_in_words(summary, method, labels, found.seeds)})" if intervals and found.seeds < most else ""
        column[method] = mark(f"{found.mean:.{digits}f}", method in first, method in family) + reach + few
    return column


def seeds_in_words(summary: Summary, method: str, labels: str, seeds: int) -> str:
    """ "2 seeds, 1 diverged"."""
    lost = [f"{count} {state}" for state, count in summary.lost(method, labels).items()]
    return ", ".join([f"{seeds} seed{'s' if seeds > 1 else ''}", *lost])


def marker(underlined: str, bold: str) -> Mark:
    """How one format underlines the best of the CG family and prints the best of all in bold."""

    def mark(text: str, first: bool, family: bool) -> str:
        text = underlined.format(text) if family else text
        return bold.format(text) if first else text

    return mark


rich_mark = marker("[underline]{}[/]", "[bold]{}[/]")
markdown_mark = marker("<u>{}</u>", "**{}**")
html_mark = marker("<u>{}</u>", "<b>{}</b>")
latex_mark = marker(r"\underline{{{}}}", r"\textbf{{{}}}")


def all_in_markdown(summary: Summary, notes: Sequence[str]) -> str:
    """Every table, one for each choice of labels, and what the numbers mean."""
    parts = []
    for y in summary.labels:
        parts.append(f"### {labels_in_words(summary, y)}\n")
        metrics = [m for metrics in TABLES.values() for m in metrics]
        columns = [cells(summary, m, y, markdown_mark) for m in metrics] + [scales(summary, y)]
        lines = ["| method | " + " | ".join([*map(head, metrics), "λ or w"]) + " |", "|---" * (len(metrics) + 2) + "|"]
        lines += [f"| {m} | " + " | ".join(column[m] for column in columns) + " |" for m in summary.methods]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) + "\n" + "\n".join(f"- {note}." for note in notes) + "\n"


def scales(summary: Summary, labels: str) -> dict[str, str]:
    """The chosen λ (or w) of each seed; nothing where there is nothing to choose."""

    def chosen(method: str) -> str:
        return (
            ", ".join(f"{r['scale']:g}" for r in summary.of(method, labels)) if len(METHODS[method].scales) > 1 else ""
        )

    return {m: chosen(m) or "–" for m in summary.methods}


def quality_html(summary: Summary, labels: str) -> dict[str, Any]:
    """Heads, and a row of marked cells for each method, with one choice of labels."""
    metrics = [m for title in QUALITY for m in TABLES[title]]
    columns = [cells(summary, metric, labels, html_mark) for metric in metrics] + [scales(summary, labels)]
    rows = {m: [c[m] for c in columns] for m in summary.methods}
    return {"heads": [*map(head, metrics), "λ or w"], "rows": rows}


def calibration_html(summary: Summary) -> dict[str, Any]:
    """The same of the guide's calibration, a column for each choice of labels; methods without a guide are left out."""
    columns = [cells(summary, "ece", y, html_mark) for y in summary.labels]
    guides = [m for m in summary.methods if any(summary.estimate(m, y, "ece") for y in summary.labels)]
    heads = [labels_in_words(summary, y) for y in summary.labels]
    return {"heads": heads, "rows": {m: [c[m] for c in columns] for m in guides}}


def labels_in_words(summary: Summary, labels: str) -> str:
    """ "0.02" -> "2 %: 30 labels"."""
    count = summary.labelled.get(labels)
    try:
        text = f"{100 * float(labels):g} %"
    except ValueError:
        text = labels
    return text if count is None else f"{text}: {count} labels"


def latex(summary: Summary) -> str:
    """Every table as a booktabs tabular, in the paper's arrangement: a block of columns per choice of labels."""
    parts = [r"% needs \usepackage{booktabs}"]
    for title, metrics in TABLES.items():
        n, blocks = len(metrics), summary.labels
        above = " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{tex(labels_in_words(summary, y))}}}" for y in blocks)
        arrows = [r"$\downarrow$" if m in LOWER_IS_BETTER else r"$\uparrow$" for m in metrics]
        heads = " & ".join(f"{HEADS[m]} ({a})" for _ in blocks for m, a in zip(metrics, arrows, strict=True))
        columns = [cells(summary, metric, y, latex_mark) for y in blocks for metric in metrics]
        rows = [
            f"{method} & " + " & ".join(tex_number(column[method]) for column in columns) + r" \\"
            for method in summary.methods
        ]
        parts.append(
            "\n".join(
                [
                    f"% {title}",
                    rf"\begin{{tabular}}{{l{'c' * n * len(blocks)}}}",
                    r"\toprule",
                    f" & {above} \\\\",
                    f"Method & {heads} \\\\ \\midrule",
                    *rows,
                    r"\bottomrule",
                    r"\end{tabular}",
                ]
            )
        )
    return "\n\n".join(parts) + "\n"


def tex(text: str) -> str:
    return "".join(f"\\{c}" if c in "%_&#${}" else c for c in text)


def tex_number(text: str) -> str:
    return text.replace("±", r"$\pm$").replace("–", "--")


def table_csv(summary: Summary) -> str:
    """A line per method, choice of labels and metric, with everything a plot needs."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["method", "labels", "labelled", "metric", "mean", "half_interval_95", "seeds", "values", "scales"])
    for method in summary.methods:
        for y in summary.labels:
            mine = summary.of(method, y)
            scales, seeds = " ".join(f"{r['scale']:g}" for r in mine), " ".join(str(r["seed"]) for r in mine)
            for metric in HEADS:
                found = summary.estimate(method, y, metric)
                if found is not None:
                    values = " ".join(f"{v:.6g}" for v in found.values)
                    reach = "" if found.reach is None else f"{found.reach:.6g}"
                    head = [method, y, summary.labelled[y], metric, f"{found.mean:.6g}", reach]
                    writer.writerow([*head, seeds, values, scales])
    return stream.getvalue()
