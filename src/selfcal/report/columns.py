"""The one table of result columns: how each is called, which way is better, how many digits it is worth.

A new column of results is its value in evaluation and a row of RESULTS; below are the tables that show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A number of a result, by its key, and what people read above it."""

    key: str
    head: str  # in tables
    name: str  # in figures and sentences
    narrow: str  # on a terminal, in two lines
    lower_is_better: bool
    digits: int

    @property
    def arrow(self) -> str:
        return "↓" if self.lower_is_better else "↑"

    @property
    def title(self) -> str:
        return f"{self.head} {self.arrow}"

    @property
    def long_title(self) -> str:
        return f"{self.name} {self.arrow}"

    @property
    def sign(self) -> int:
        """Of a number, so that more is better."""
        return -1 if self.lower_is_better else 1

    def best(self, values: Iterable[float]) -> float:
        return min(values) if self.lower_is_better else max(values)

    def written(self, value: float | None) -> str:
        return "–" if value is None else f"{value:.{self.digits}f}"


LOWER, HIGHER = True, False

RESULTS = (
    Column("intra_fid", "intra-FID", "intra-FID", "intra\nFID", LOWER, 1),
    Column("fid", "FID", "FID", "\nFID", LOWER, 1),
    Column("density", "Den", "density", "\nden", HIGHER, 2),
    Column("coverage", "Cov", "coverage", "\ncov", HIGHER, 2),
    Column("intra_density", "intra-Den", "intra-density", "intra\nden", HIGHER, 2),
    Column("intra_coverage", "intra-Cov", "intra-coverage", "intra\ncov", HIGHER, 2),
    Column("accuracy", "Acc", "generation accuracy", "gen.\nacc", HIGHER, 3),
    Column("agreement", "Agree", "agreement of a second classifier", "agree\nment", HIGHER, 3),
    Column("inception_score", "IS", "Inception score", "\nIS", HIGHER, 2),
    Column("ece", "ECE", "calibration error of the guide", "guide\nECE", LOWER, 3),
    Column("kid", "KID", "KID", "\nKID", LOWER, 3),
    Column("guide_accuracy", "Guide acc", "accuracy of the guide", "guide\nacc", HIGHER, 3),
    Column("sc_fraction", "SC/zero", "loss of the guide's inner score, of a zero score's", "SC/\nzero", LOWER, 3),
)
"""What evaluation measures of a run."""

GRADIENTS = (
    Column("gradient_mse", "Gradient MSE", "gradient MSE", "gradient\nMSE", LOWER, 2),
    Column("gradient_cs", "Gradient CS", "gradient CS", "gradient\nCS", HIGHER, 3),
    Column("cond_score_cs", "Cond-Score CS", "cond-score CS", "cond-score\nCS", HIGHER, 3),
    Column("direction_cs", "Gradient CS, any length", "gradient CS, any length", "direction\nCS", HIGHER, 3),
)
"""What the toy measures of a classifier's gradients."""

COLUMNS = {column.key: column for column in (*RESULTS, *GRADIENTS)}


def columns(*keys: str) -> tuple[Column, ...]:
    return tuple(COLUMNS[key] for key in keys)


# --- which table or figure shows what, the most telling first --------------------------------------

SAMPLE_QUALITY = columns("intra_fid", "fid", "density", "coverage")
WITHIN_CLASSES = columns("intra_density", "intra_coverage", "accuracy", "inception_score")
CALIBRATION = columns("ece", "guide_accuracy", "sc_fraction")
ALONE = columns("fid", "inception_score", "intra_fid", "accuracy")
EVALUATION = columns(
    "intra_fid", "fid", "density", "coverage", "intra_density", "intra_coverage", "accuracy", "agreement", "ece"
)
COMPARISON = columns("intra_fid", "fid", "density", "coverage", "accuracy", "ece")  # on a terminal: as many as fit
DEMO = columns("intra_fid", "fid", "accuracy", "density", "coverage", "intra_density", "intra_coverage", "ece")
OVER_LABELS = columns("intra_fid", "intra_density", "intra_coverage")
OVER_SCALE = columns("intra_fid", "fid", "accuracy")
