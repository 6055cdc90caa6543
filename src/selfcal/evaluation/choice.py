"""Which λ: the one nearest to images of known class, or to those that the guide labels; or none, and that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WITH_LABELS = "intra-FD to images of known class"
WITHOUT_LABELS = "intra-FD to the training images as the guide labels them"
NOTHING_TO_CHOOSE_BY = "nothing: too few images of known class, and no guide to label the others"
ONLY = "nothing: it is the only one"


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
    with_labels, without_labels = best(trials, "intra_fid"), best(trials, "label_free_fid")
    if with_labels is not None:
        return Choice(with_labels, WITH_LABELS, with_labels, without_labels)
    if without_labels is not None:
        return Choice(without_labels, WITHOUT_LABELS, None, without_labels)
    return Choice(None, NOTHING_TO_CHOOSE_BY)


def best(trials: Mapping[float, Mapping[str, Any]], key: str) -> float | None:
    """The λ with the smallest value; None unless all have one."""
    values = {scale: row.get(key) for scale, row in trials.items()}
    if not values or any(v is None for v in values.values()):
        return None
    return min(values, key=lambda scale: values[scale])  # type: ignore[arg-type,return-value]
