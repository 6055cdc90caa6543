"""What a measured result must hold before a table, a figure or a page is made of it."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, RootModel, model_validator

from selfcal.core.reading import Record
from selfcal.report.columns import COLUMNS

LARGEST = 1e30  # a metric beyond it was not measured
Count = Annotated[int, Field(ge=0, lt=2**53)]
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Scale = Annotated[float, Field(ge=0, le=1e6)]
Interval = Annotated[list[Finite], Field(min_length=2, max_length=2)]


class Numbers(Record):
    """Columns of the result table are numbers, or not measured."""

    @model_validator(mode="after")
    def _finite(self) -> Numbers:
        said: dict[str, Any] = self.__pydantic_extra__ or {}
        for key, value in said.items():
            known = not isinstance(value, bool) and isinstance(value, int | float)
            if key in COLUMNS and value is not None and not (known and math.isfinite(value) and abs(value) <= LARGEST):
                raise ValueError(f"{key} is not a number")
        return self


class Measured(Numbers):
    """A result of an evaluation."""

    method: str
    labels: str
    labelled: Count
    seed: int
    scale: Scale
    chosen: bool
    samples: Count
    biased: bool
    k: Count
    sampler: str
    evaluations: Count
    features: str
    features_sha256: str
    reference: str
    reference_sha256: str
    reference_examples: Count
    reference_per_class: Count
    intra_fid: Finite | None
    intervals: dict[str, Interval | None] | None
    distance: str = "FID"


class Tried(Numbers):
    """What was measured at one λ while choosing."""

    scale: Scale
    intra_fid: Finite | None
    fid: Finite | None
    accuracy: Finite | None


class Level(Numbers):
    """A guide at one level of noise."""

    sigma: Annotated[float, Field(gt=0, le=LARGEST)]
    accuracy: Finite
    ece: Finite


class Results(RootModel[list[Measured]]):
    """results.json of a demo."""
