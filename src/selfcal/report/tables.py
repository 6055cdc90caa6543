"""Results of a run as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from selfcal.core.comparable import LEAST, check_comparable
from selfcal.report.columns import COLUMNS, EVALUATION, Column


def print_results(
    console: Console, results: list[dict[str, Any]], title: str, strength: str = "λ", classes: int | None = None
) -> None:
    """A row per result, if all were measured alike; what they mean below. * marks the chosen λ.

    strength: what the guidance scale is called, λ or (of classifier-free guidance) w. classes: how many there are, so
    that shares can be told from chance.
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
    for r in [r for r in results if r["intervals"] and (r["chosen"] or len(results) == 1)]:
        console.print(f"95 % intervals at {strength} = {r['scale']:g}: {', '.join(spans(r, shown))}")
    console.print(meaning(results[0]))
    for sentence in filter(None, (verdict(r, classes) for r in results if r["chosen"] and classes)):
        console.print(sentence)


def spans(r: dict[str, Any], shown: Sequence[Column]) -> list[str]:
    """From … to …, of every number that has an interval."""
    found = [(column, r["intervals"].get(column.key)) for column in shown]
    known = [(c, span) for c, span in found if span is not None]
    words = [f"{c.name} {c.written(low)} to {c.written(high)}" for c, (low, high) in known]
    return words if distance(r) == "FID" else [word.replace("FID", "FD") for word in words]


def verdict(r: dict[str, Any], classes: int) -> str:
    """In plain words, where the share of samples that are of their class says nothing good."""
    chance = 1 / classes
    for key, by in (("accuracy", "the judge"), ("agreement", "a classifier of the given labels")):
        if (share := r.get(key)) is None:
            continue
        low = ((r["intervals"] or {}).get(key) or [share])[0]
        if low <= chance:
            return (
                f"Of the classes {by} recognises no more than chance would: {share:.2f}, where guessing gives "
                f"{chance:.2f}. The images are not of the classes asked for: train for longer, or label more."
            )
        return f"In {share:.0%} of the samples {by} sees the class asked for; guessing gives {chance:.0%}."
    return ""


def meaning(r: dict[str, Any]) -> str:
    """How the numbers were made: without it they compare with nothing."""
    words = (
        f"{r['samples']} samples, {r['sampler']} with {r['evaluations']} evaluations, k={r['k']}, "
        f"features {r['features']} {r['features_sha256'][:12]}, reference: {r['reference']}"
    )
    if distance(r) != "FID":
        words += f", FD: {distance(r)}"
    if reach(r):
        words += ", ±: 95 % interval"
    if r.get("reference_of_classes") == "test":
        words += f", of each class: {r['reference_per_class']} or more test images"
    if r.get("agreement") is not None:
        words += "; agreement: samples in which a linear classifier of the given labels sees the class asked for"
    if r["intra_fid"] is None:
        words += (
            f"; intra-metrics need {LEAST} images of known class in each, and one has {r['reference_per_class']} "
            "(more labels, or --test-labels FILE, give them)"
        )
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
