"""What every number of a comparison means, and how they were made, in sentences."""

from __future__ import annotations

from selfcal.experiments.compare.grid import Grid
from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.tables import INTERVAL, labels_in_words
from selfcal.methods.table import METHODS
from selfcal.report.units import duration


def notes(comparison: Grid, summary: Summary) -> list[str]:
    """What stands below the tables."""
    return [
        *origin(comparison, summary),
        *(f"no numbers: {trouble}" for trouble in troubles(summary)),
        *measurement(comparison, summary),
        INTERVAL,
        "bold: best of all; underlined: best of the methods guided by a classifier; computed from the means as "
        "printed, of the methods with all seeds",
        *at_the_edge(summary),
    ]


def origin(comparison: Grid, summary: Summary) -> list[str]:
    """The commands, and the time they took."""
    waiting = len(comparison.cells) - len(summary.outcomes)
    hours = sum(i["seconds"] for i in comparison.invocations) / 3600
    commands = dict.fromkeys(i["command"] for i in comparison.invocations if i["command"])
    jobs = sorted({i["jobs"] for i in comparison.invocations})
    return [
        *(f"Made by `{command}`" for command in commands),
        f"{len(summary.outcomes)} cells in {duration(hours)}, {' or '.join(map(str, jobs))} at a time"
        + (f"; {waiting} more are not done yet" if waiting else ""),
    ]


def measurement(comparison: Grid, summary: Summary) -> list[str]:
    """Training, sampling and features, which all cells share."""
    r = summary.results[0]
    steps = {s: comparison.protocol.settings[s]["steps"] for s in ("score", "classifier", "conditional")}
    return [
        f"{r['reference_examples']} training images; every network is trained for the same number of steps: "
        + ", ".join(f"{name} {n}" for name, n in steps.items())
        + "; the score model of a seed is shared by all methods that use one",
        f"{r['samples']} samples per cell by {r['sampler']} with {r['evaluations']} evaluations; λ is chosen within "
        "the paper's grid by intra-FID on samples that are not reported",
        f"features {r['features']} {r['features_sha256'][:12]}, k = {r['k']}, reference: {r['reference']} images; the "
        "distances compare with each other, not with those of another extractor or number of samples"
        + ("; below 2048 samples they are biased upwards, for all alike" if r["biased"] else ""),
    ]


def troubles(summary: Summary) -> list[str]:
    """Cells that failed or diverged, and why."""
    sentences = []
    for o in summary.outcomes:
        name = f"{o['method']}, {o['labels']}, seed {o['seed']}"
        if o["state"] == "failed":
            sentences.append(f"{name} failed ({o['error']})")
        elif o.get("diverged"):
            where = f"at step {o['diverged']['step']} of the {o['diverged']['network']} network"
            sentences.append(f"{name} diverged {where}")
    return sentences


def at_the_edge(summary: Summary) -> list[str]:
    """Who chose the strongest guidance on offer: more might be better still."""
    sentences = []
    largest = {m: METHODS[m].scales[-1] for m in summary.methods if len(METHODS[m].scales) > 1}
    for y in summary.labels:
        methods = [m for m in largest if any(r["scale"] == largest[m] for r in summary.of(m, y))]
        if methods:
            sentences.append(f"{labels_in_words(summary, y)}: the largest λ or w was chosen by {', '.join(methods)}")
    return sentences
