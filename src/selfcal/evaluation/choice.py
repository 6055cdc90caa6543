"""Which λ: the one nearest to images of known class, or to those that the guide labels; or none, and that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WITH_LABELS = "intra-FD to images of known class"
WITHOUT_LABELS = "intra-FD to the training images as the guide labels them"
NOTHING_TO_CHOOSE_BY = "nothing: too few images of known class, and no guide to label the others"
ONLY = "nothing: it is the only one"
TIED = 0.05  # share of the smallest distance without labels by which others are no worse: less than its noise


@dataclass(frozen=True)
class Choice:
    """The λ that is recommended, by what it was chosen, and what either way of choosing says."""

    scale: float | None
    by: str
    with_labels: float | None = None
    without_labels: float | None = None

    def in_json(self, results: Sequence[Mapping[str, Any]], trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """With the price of choosing without labels: intra-FD at that λ over intra-FD at the λ chosen with them."""
        both = {self.with_labels, self.without_labels}
        reported = both <= {r["scale"] for r in results}
        rows = {r["scale"]: r["intra_fid"] for r in (results if reported else trials)}
        known = None not in both and all(rows.get(s) for s in both)
        return {
            "scale": self.scale,
            "by": self.by,
            "with_labels": self.with_labels,
            "without_labels": self.without_labels,
            "ratio": rows[self.without_labels] / rows[self.with_labels] if known else None,
            "ratio_on": ("reported samples" if reported else "the samples λ was chosen on") if known else None,
        }


def chosen(scales: Sequence[float], trials: Mapping[float, Mapping[str, Any]]) -> Choice:
    """From what was measured at each λ on samples of their own."""
    if len(scales) == 1:
        return Choice(scales[0], ONLY)
    with_labels, without_labels = best(trials, "intra_fid"), best(trials, "label_free_fid", TIED)
    if with_labels is not None:
        return Choice(with_labels, WITH_LABELS, with_labels, without_labels)
    if without_labels is not None:
        return Choice(without_labels, WITHOUT_LABELS, None, without_labels)
    return Choice(None, NOTHING_TO_CHOOSE_BY)


def decides_nothing(selection: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the distance without labels is the same at every λ, but for its noise."""
    values = [row.get("label_free_fid") for row in selection]
    known = [float(v) for v in values if v is not None]
    return len(known) == len(values) > 1 and max(known) <= min(known) * (1 + TIED)


def best(trials: Mapping[float, Mapping[str, Any]], key: str, tied: float = 0.0) -> float | None:
    """The λ with the smallest value, and of those that tie with it the largest; None unless all have one.

    The guide takes some images for the wrong class, so a distance to its classes rewards samples that are a little of
    several, which is too little guidance: where the distance cannot decide, more is the better guess.
    """
    values = {scale: row.get(key) for scale, row in trials.items()}
    if not values or any(v is None for v in values.values()):
        return None
    least = min(values.values())  # type: ignore[type-var]
    return max(scale for scale, value in values.items() if value <= least * (1 + tied))  # type: ignore[operator]
