"""Outcomes of many cells -> one number with an interval per method, choice of labels and metric."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from selfcal.metrics import check_comparable

# Student's t at 97.5 % for 1, 2, … degrees of freedom.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)

LOWER_IS_BETTER = {"intra_fid", "fid", "kid", "ece"}
HEADS = {  # key of a result: its head
    "intra_fid": "intra-FID",
    "fid": "FID",
    "density": "Den",
    "coverage": "Cov",
    "intra_density": "intra-Den",
    "intra_coverage": "intra-Cov",
    "accuracy": "Acc",
    "inception_score": "IS",
    "ece": "ECE",
    "kid": "KID",
}


def student(degrees: int) -> float:
    """Beyond the list, the first term of its expansion about the normal value."""
    return STUDENT[degrees - 1] if degrees <= len(STUDENT) else 1.96 + 2.4 / degrees


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds. `reach` is half the 95 % interval: over seeds if there are several, else of the one sample."""

    values: tuple[float, ...]
    alone: tuple[float, float] | None = None  # the interval of a single seed's samples

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def reach(self) -> float | None:
        n = len(self.values)
        if n == 1:
            return None if self.alone is None else (self.alone[1] - self.alone[0]) / 2
        return student(n - 1) * statistics.stdev(self.values) / math.sqrt(n)

    @property
    def seeds(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Summary:
    """All outcomes of a comparison, asked by method, labels and metric."""

    outcomes: Sequence[dict[str, Any]]

    def __post_init__(self) -> None:
        check_comparable(self.results)

    @cached_property
    def results(self) -> list[dict[str, Any]]:
        """The chosen result of every cell that has numbers."""
        found = [r for o in self.outcomes for r in o.get("results", ()) if r["chosen"]]
        return sorted(found, key=lambda r: r["seed"])

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(o["method"] for o in self.outcomes))

    @cached_property
    def labels(self) -> list[str]:
        """Few labels first."""
        counts = self.labelled
        return sorted(dict.fromkeys(o["labels"] for o in self.outcomes), key=lambda y: counts.get(y, 0))

    @cached_property
    def labelled(self) -> dict[str, int]:
        """How many images each choice of labels shows."""
        return {r["labels"]: r["labelled"] for r in self.results}

    @property
    def seeds(self) -> list[int]:
        return sorted({o["seed"] for o in self.outcomes})

    def of(self, method: str, labels: str) -> list[dict[str, Any]]:
        return [r for r in self.results if (r["method"], r["labels"]) == (method, labels)]

    def estimate(self, method: str, labels: str, metric: str) -> Estimate | None:
        mine = [r for r in self.of(method, labels) if r[metric] is not None]
        if not mine:
            return None
        interval = (mine[0]["intervals"] or {}).get(metric)
        return Estimate(tuple(r[metric] for r in mine), tuple(interval) if interval else None)

    def trouble(self, method: str, labels: str) -> str:
        """Why a cell is empty: diverged, failed, or never asked for."""
        lost = self.lost(method, labels)
        return next((state for state in ("diverged", "failed") if lost[state]), "not run")

    def lost(self, method: str, labels: str) -> Counter[str]:
        """How many seeds have no numbers, by what became of them."""
        mine = [o for o in self.outcomes if (o["method"], o["labels"]) == (method, labels)]
        return Counter("diverged" if o.get("diverged") else "failed" for o in mine if not o.get("results"))

    def best(self, methods: Sequence[str], labels: str, metric: str, digits: int) -> set[str]:
        """Who has the best mean, as printed: equal numbers share the honour.

        Only those with all seeds compete: which images are labelled matters as much as the method. Nobody
        wins where nobody competes, or all have the same.
        """
        found = {m: e for m in methods if (e := self.estimate(m, labels, metric)) is not None}
        asked = len({r["seed"] for m in found for r in self.of(m, labels)})
        means = {m: round(e.mean, digits) for m, e in found.items() if e.seeds == asked}
        if len(set(means.values())) < 2:
            return set()
        top = (min if metric in LOWER_IS_BETTER else max)(means.values())
        return {m for m, value in means.items() if value == top}

    def paired(self, a: str, b: str, labels: str, metric: str) -> list[tuple[float, float]]:
        """(a, b) of the seeds that both have."""
        right = {r["seed"]: r[metric] for r in self.of(b, labels)}
        pairs = [(r[metric], right.get(r["seed"])) for r in self.of(a, labels)]
        return [(x, y) for x, y in pairs if x is not None and y is not None]


def digits_of(metric: str) -> int:
    return 1 if metric in ("intra_fid", "fid") else 3 if metric in ("ece", "kid", "accuracy") else 2
