"""What the small files of a comparison must hold: compare.json, and the outcome of each cell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from selfcal.core.bounds import LARGEST_SEED, MOST_JOBS
from selfcal.core.reading import Record
from selfcal.core.settings import Settings
from selfcal.experiments.compare.variants import base
from selfcal.methods.table import CLASSIFIER_GRIDS, METHODS
from selfcal.report.records import Count, Measured, Numbers, Tried

VARIED = re.compile(r"[a-z]+\.[a-z0-9_]+=[\w.+-]+")
AGAIN = "remove that file, and the same compare command makes it anew"
RESTORE = "put back a copy of it if there is one: nothing else can be read without it; or give another --out"


def _known(method: str) -> str:
    """A row of the method table, and what is varied: it becomes the name of a folder."""
    if base(method) not in METHODS or not all(VARIED.fullmatch(part) for part in method.split(" ")[1:]):
        raise ValueError("no such method")
    return method


def _choice(labels: str) -> str:
    """It becomes the name of a folder, too."""
    if labels in ("", ".", "..") or "\0" in labels or len(labels) > 4096 or Path(labels).stem in ("", "..", "."):
        raise ValueError("no choice of labels is called so")
    return labels


def _grid(scales: str) -> str:
    if scales not in CLASSIFIER_GRIDS:
        raise ValueError("no such grid of guidance scales")
    return scales


Method = Annotated[str, AfterValidator(_known)]
Labels = Annotated[str, AfterValidator(_choice)]
Seed = Annotated[int, Field(ge=-LARGEST_SEED, le=LARGEST_SEED)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]


class Invocation(Record):
    command: str | None
    jobs: Annotated[int, Field(ge=0, le=MOST_JOBS)]
    seconds: Seconds


class ProtocolRecord(Record):
    data: str
    data_sha256: str
    preset: str
    settings: dict[str, Any]
    samples: Count
    score_labels: str
    scales: Annotated[str, AfterValidator(_grid)] = "paper"
    score_seed: Seed | None = None
    label_free: bool = False
    how_read: dict[str, Any] = Field(default_factory=dict)
    score: str | None = None
    score_sha256: str | None = None

    @model_validator(mode="after")
    def _of_this_version(self) -> ProtocolRecord:
        Settings.model_validate(self.settings)
        return self


class Comparison(Record):
    """compare.json."""

    protocol: ProtocolRecord
    cells: list[tuple[Method, Labels, Seed]]
    invocations: list[Invocation]


class Divergence(Record):
    network: str
    step: Count


class Alone(Numbers):
    guide: str


class Training(Record):
    training: Seconds


class Outcome(Record):
    """seed-*.json of a cell."""

    method: Method
    labels: Labels
    seed: Seed
    state: Literal["done", "failed"]
    error: str | None = None
    diverged: Divergence | None = None
    seconds: Training | None = None
    results: list[Measured] = Field(default_factory=list)
    selection: list[Tried] = Field(default_factory=list)
    alone: list[Alone] = Field(default_factory=list)

    @model_validator(mode="after")
    def _of_one_piece(self) -> Outcome:
        if self.state == "failed" and self.error is None:
            raise ValueError("it failed and does not say why")
        own = (self.method, self.labels, self.seed)
        if any((r.method, r.labels, r.seed) != own for r in self.results):
            raise ValueError("its results are those of another cell")
        return self
