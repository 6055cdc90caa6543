"""What every number of a comparison means, and how they were made, in sentences."""

from __future__ import annotations

from typing import Any

from selfcal.core.errors import look_up
from selfcal.core.escapes import markdown_code
from selfcal.experiments.compare.grid import Grid
from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.tables import INTERVAL, Named, labels_in_words
from selfcal.methods.table import CLASSIFIER_GRIDS, FREE_GRIDS
from selfcal.report.units import duration


def notes(comparison: Grid, summary: Summary, named: Named = str) -> list[str]:
    """What stands below the tables, commands between backticks. named: how the medium takes words of others."""
    return [
        *origin(comparison, summary),
        *(f"no numbers: {trouble}" for trouble in troubles(summary, named)),
        *measurement(comparison, summary, named),
        INTERVAL,
        "bold: best of all; underlined: best of the methods guided by a classifier; computed from the means as "
        "printed, of the methods with all seeds",
        *at_the_edge(summary, named),
    ]


def origin(comparison: Grid, summary: Summary) -> list[str]:
    """The commands, and the time they took."""
    waiting = len(comparison.cells) - len(summary.outcomes)
    hours = sum(i["seconds"] for i in comparison.invocations) / 3600
    commands = dict.fromkeys(i["command"] for i in comparison.invocations if i["command"])
    jobs = sorted({i["jobs"] for i in comparison.invocations})
    return [
        *(f"Made by {markdown_code(command.replace('`', ' '))}" for command in commands),
        f"{len(summary.outcomes)} cells in {duration(hours)}, {' or '.join(map(str, jobs))} at a time"
        + (f"; {waiting} more are not done yet" if waiting else ""),
    ]


def measurement(comparison: Grid, summary: Summary, named: Named) -> list[str]:
    """Training, sampling and features, which all cells share."""
    r = summary.results[0]
    strengths, weights = (
        ", ".join(f"{s:g}" for s in look_up("grid of guidance scales", comparison.protocol.scales, grids))
        for grids in (CLASSIFIER_GRIDS, FREE_GRIDS)
    )
    shared = comparison.protocol.score_seed
    whose = "the score model of a seed" if shared is None else f"one score model (seed {shared}), for all seeds,"
    if comparison.protocol.score_sha256 is not None:
        whose = f"one score model ({comparison.protocol.score_sha256[:12]}), taken over from another run,"
    steps = {s: comparison.protocol.settings[s]["steps"] for s in ("score", "classifier", "conditional")}
    return [
        f"{r['reference_examples']} training images; every network is trained for the same number of steps: "
        + ", ".join(f"{name} {n}" for name, n in steps.items())
        + f"; {whose} is shared by all methods that use one",
        f"{r['samples']} samples per cell by {named(r['sampler'])} with {r['evaluations']} evaluations; λ is chosen "
        f"from {strengths} (w from {weights}) by intra-FID on samples that are not reported",
        f"features {named(r['features'])} {named(r['features_sha256'][:12])}, k = {r['k']}, reference: "
        f"{named(r['reference'])} images; the "
        "distances compare with each other, not with those of another extractor or number of samples"
        + ("; below 2048 samples they are biased upwards, for all alike" if r["biased"] else ""),
    ]


def troubles(summary: Summary, named: Named) -> list[str]:
    """Cells that failed or diverged, and why."""
    sentences = []
    for o in summary.outcomes:
        name = f"{named(o['method'])}, {named(o['labels'])}, seed {o['seed']}"
        if o["state"] == "failed":
            sentences.append(f"{name} failed ({named(o['error'])})")
        elif o.get("diverged"):
            where = f"at step {o['diverged']['step']} of the {named(o['diverged']['network'])} network"
            sentences.append(f"{name} diverged {where}")
    return sentences


def at_the_edge(summary: Summary, named: Named) -> list[str]:
    """Who chose the strongest guidance on offer: more might be better still."""
    sentences = []
    for y in summary.labels:
        outcomes = [o for o in summary.outcomes if o["labels"] == y and len(o.get("selection", ())) > 1]
        largest = [o for o in outcomes if chosen(o) == max(row["scale"] for row in o["selection"])]
        if methods := dict.fromkeys(o["method"] for o in largest):
            names = ", ".join(map(named, methods))
            sentences.append(f"{labels_in_words(summary, y, named)}: the largest λ or w was chosen by {names}")
    return sentences


def chosen(outcome: dict[str, Any]) -> float | None:
    return next((r["scale"] for r in outcome.get("results", ()) if r["chosen"]), None)
