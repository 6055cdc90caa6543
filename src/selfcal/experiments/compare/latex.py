"""The paper's tables as LaTeX, in its arrangement: a block of columns per choice of labels."""

from __future__ import annotations

from collections.abc import Sequence

from selfcal.core.escapes import latex as latex_escape
from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.tables import cells, labels_in_words, marker
from selfcal.report.columns import CALIBRATION, SAMPLE_QUALITY, WITHIN_CLASSES, Column

TABLES = {
    "Sample quality": SAMPLE_QUALITY,
    "Sample quality within classes": WITHIN_CLASSES,
    "Calibration of the guide": CALIBRATION,
}

latex_mark = marker(r"\underline{{{}}}", r"\textbf{{{}}}")


def latex(summary: Summary) -> str:
    """Every table as a booktabs tabular."""
    tables = [tabular(summary, title, columns) for title, columns in TABLES.items()]
    return "\n\n".join([r"% needs \usepackage{booktabs}", *tables]) + "\n"


def tabular(summary: Summary, title: str, columns: Sequence[Column]) -> str:
    n, blocks = len(columns), summary.labels
    named = [labels_in_words(summary, y, latex_escape).replace(" %", r" \%") for y in blocks]
    above = " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{words}}}" for words in named)
    heads = " & ".join(f"{c.head} (${arrow(c)}$)" for _ in blocks for c in columns)
    texts = [cells(summary, c, y, latex_mark) for y in blocks for c in columns]
    rows = [
        f"{latex_escape(m)} & " + " & ".join(tex_number(text[m]) for text in texts) + r" \\" for m in summary.methods
    ]
    lines = [
        f"% {title}",
        rf"\begin{{tabular}}{{l{'c' * n * len(blocks)}}}",
        r"\toprule",
        f" & {above} \\\\",
        f"Method & {heads} \\\\ \\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def arrow(column: Column) -> str:
    return r"\downarrow" if column.lower_is_better else r"\uparrow"


def tex_number(text: str) -> str:
    return text.replace("±", r"$\pm$").replace("–", "--")
