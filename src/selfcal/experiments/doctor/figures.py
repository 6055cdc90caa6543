"""The doctor's figures: one question each, over the noise or over λ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfcal.report.figures import COLOURS, OTHERS, panel, svg

Rows = Sequence[Mapping[str, Any]]
GUIDE, MODEL = OTHERS[0], COLOURS["cg"]


def line(axes: Any, rows: Rows, key: str, label: str, colour: str, style: str = "o-") -> None:
    known = [row for row in rows if row.get(key) is not None]
    axes.semilogx([r["sigma"] for r in known], [r[key] for r in known], style, ms=4, color=colour, label=label)


def knows(others: Rows, labelled: Rows) -> list[str]:
    """Accuracy on images it never saw and on labelled ones; confidence and calibration error."""
    (first, (left,)), (second, (right,)) = panel(), panel()
    line(left, labelled, "accuracy", "labelled images", MODEL)
    line(left, others, "accuracy", "others", GUIDE)
    line(left, others, "confidence", "confidence on others", GUIDE, ":")
    line(right, others, "ece", "others", GUIDE)
    left.set_ylabel("guide accuracy")
    right.set_ylabel("calibration error (20 bins)")
    for axes in (left, right):
        axes.set_xlabel("noise σ")
        axes.set_ylim(0, 1.02)
    left.legend(frameon=False)
    return [svg(first), svg(second)]


def acts(table: Rows) -> list[str]:
    """Losses of both scores as fractions of a zero score's."""
    figure, (axes,) = panel()
    line(axes, table, "score", "score model", MODEL)
    line(axes, table, "guide", "guide's inner score", GUIDE)
    axes.axhline(1, color="#d62828", lw=1, ls="--", label="a zero score: nothing learned")
    axes.set_xlabel("noise σ")
    axes.set_ylabel("loss ÷ a zero score's")
    axes.set_ylim(0, max(1.5, 1.3 * max(row["guide"] for row in table)))  # with room for the legend
    axes.legend(frameon=False, loc="upper right")
    return [svg(figure)]


def pulls(table: Rows) -> list[str]:
    """Cosines and lengths, and what guidance by the true class takes off the denoising loss."""
    panels = [panel() for _ in range(3)]
    first, second, third = (axes for _, (axes,) in panels)
    kinds = (("inner", GUIDE, "inner score / score model"), ("guidance", OTHERS[1], "guidance / total"))
    for kind, colour, name in kinds:
        line(first, table, f"{kind}_cosine", name, colour)
        line(second, table, f"{kind}_length", name, colour)
    line(third, table, "gain", "", GUIDE)
    third.axhline(0, color="#d62828", lw=1, ls="--")
    for axes, words in ((first, "cosine"), (second, "ratio of lengths"), (third, "gain of denoising by guidance")):
        axes.set_xlabel("noise σ")
        axes.set_ylabel(words)
    first.set_ylim(-1.05, 1.05)
    second.set_ylim(bottom=0)
    first.legend(frameon=False)
    return [svg(figure) for figure, _ in panels]


def scales(curve: Rows, best: float | None) -> list[str]:
    """The distance to the guide's classes over λ."""
    figure, (axes,) = panel()
    axes.plot([r["scale"] for r in curve], [r["label_free_fid"] for r in curve], "o-", ms=4, color=GUIDE)
    for row in curve:
        if row["scale"] == best:
            axes.plot(row["scale"], row["label_free_fid"], "*", ms=14, color=GUIDE)
    axes.set_xlabel("guidance scale λ")
    axes.set_ylabel("distance to the guide's classes")
    axes.set_ylim(bottom=0)
    return [svg(figure)]
