"""What the files of the toy must hold: toy.json, the result of each seed and method, and results.json of them all."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model, model_validator

from selfcal.core.bounds import LARGEST_SEED
from selfcal.core.reading import Record
from selfcal.methods.table import METHODS
from selfcal.report.columns import GRADIENTS
from selfcal.report.records import Count, Finite

TRUTH = "truth"
AGAIN = "remove that file, and the same toy command makes it anew"
RESTORE = "put back a copy of it if there is one, or give another --out"


def _known(method: str) -> str:
    """It becomes the name of a file."""
    if method != TRUTH and method not in METHODS:
        raise ValueError("no such method")
    return method


class Scaled(Record):
    value: Finite
    scale: Finite


Errors = create_model("Errors", __base__=Record, **{c.key: (Finite, ...) for c in GRADIENTS})  # type: ignore[call-overload]
Best = create_model("Best", __base__=Record, **{c.key: (Scaled, ...) for c in GRADIENTS})  # type: ignore[call-overload]
One = create_model("One", __base__=Errors, scale=(Finite, ...))


class Result(Record):
    """seeds/0000/cg.json."""

    method: Annotated[str, AfterValidator(_known)]
    seed: Annotated[int, Field(ge=-LARGEST_SEED, le=LARGEST_SEED + 2**20)]
    steps: Count
    cpu_seconds: Annotated[float, Field(ge=0, le=1e12)]
    diverged: dict[str, Any] | None
    plain: Errors | None = None
    best: Best | None = None
    one: One | None = None
    paths_right: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _measured(self) -> Result:
        if self.diverged is None and None in (self.plain, self.best, self.one, self.paths_right):
            raise ValueError("its numbers are missing")
        return self


class Report(Record):
    """results.json."""

    labels: Count
    examples: Count
    settings: dict[str, Any]
    results: list[Result] = Field(min_length=1)


class Study(Record):
    """toy.json."""

    labels: Count
    settings: dict[str, Any]
    own_steps: dict[str, Count]
