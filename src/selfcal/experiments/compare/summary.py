"""Outcomes of many cells -> one number with an interval per method, choice of labels and metric."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from selfcal.core.comparable import check_comparable
from selfcal.report.columns import Column


def student(degrees: int) -> float:
    """Student's t at 97.5 %: half a 95 % interval, in standard errors."""
    from scipy import stats

    return float(stats.t.ppf(0.975, degrees))


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
        results = [r for o in self.outcomes for r in o.get("results", ()) if r["chosen"]]
        return sorted(results, key=lambda r: r["seed"])

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

    def estimate(self, method: str, labels: str, column: Column) -> Estimate | None:
        results = [r for r in self.of(method, labels) if r.get(column.key) is not None]
        if not results:
            return None
        interval = (results[0]["intervals"] or {}).get(column.key)
        return Estimate(tuple(r[column.key] for r in results), tuple(interval) if interval else None)

    def trouble(self, method: str, labels: str) -> str:
        """Why a cell is empty: diverged, failed, or never asked for."""
        lost = self.lost(method, labels)
        return next((state for state in ("diverged", "failed") if lost[state]), "not run")

    def lost(self, method: str, labels: str) -> Counter[str]:
        """How many seeds have no numbers, by what became of them."""
        outcomes = [o for o in self.outcomes if (o["method"], o["labels"]) == (method, labels)]
        return Counter("diverged" if o.get("diverged") else "failed" for o in outcomes if not o.get("results"))

    def best(self, methods: Sequence[str], labels: str, column: Column) -> set[str]:
        """Who has the best mean, as printed: equal numbers share the honour.

        Only those with all seeds compete: which images are labelled matters as much as the method. Nobody
        wins where nobody competes, or all have the same.
        """
        estimates = {m: e for m in methods if (e := self.estimate(m, labels, column)) is not None}
        seeds = len({r["seed"] for m in estimates for r in self.of(m, labels)})
        means = {m: round(e.mean, column.digits) for m, e in estimates.items() if e.seeds == seeds}
        if len(set(means.values())) < 2:
            return set()
        top = column.best(means.values())
        return {m for m, value in means.items() if value == top}

    def paired(self, a: str, b: str, labels: str, column: Column) -> list[tuple[float, float]]:
        """(a, b) of the seeds that both have."""
        right = {r["seed"]: r.get(column.key) for r in self.of(b, labels)}
        pairs = [(r.get(column.key), right.get(r["seed"])) for r in self.of(a, labels)]
        return [(x, y) for x, y in pairs if x is not None and y is not None]
