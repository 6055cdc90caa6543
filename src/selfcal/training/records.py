"""What the JSON files of a run directory hold; anything else in them is refused in one sentence (core/reading.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, RootModel, ValidationError, model_validator

from selfcal.core.bounds import LARGEST_SEED
from selfcal.core.errors import SelfcalError
from selfcal.core.reading import Record, first_problem, read_if_there, read_record
from selfcal.core.settings import Settings

LARGEST_EXAMPLE = 2**24  # numbers in one example; a network for more could not be held anyway

MOST_THREADS = 2**12

Count = Annotated[int, Field(ge=0, lt=2**62)]


class DataRecord(Record):
    source: str
    name: str
    sha256: str
    shape: list[Annotated[int, Field(ge=1, le=LARGEST_EXAMPLE)]] = Field(min_length=1, max_length=3)
    classes: list[str] = Field(min_length=1, max_length=2**20)
    examples: Count
    test: Count
    size: Annotated[int, Field(ge=1, le=LARGEST_EXAMPLE)] | None = None
    skip_broken: bool | None = None
    test_labels: str | None = None


class Asked(Record):
    """What was said of the settings, on the command line or in Python."""

    preset: str | None
    steps: int | None
    minutes: float | None
    settings: dict[str, Any]


class PaceRecord(Record):
    """What `--minutes` was planned with."""

    minutes: float
    seconds: dict[str, float]


class PlanBefore(Record):
    """A plan that was changed on the way: its steps by role, and where each network was then."""

    steps: dict[str, Count]
    reached: dict[str, Count]


class Config(Record):
    """config.json."""

    method: str
    data: DataRecord
    labels: str
    labelled: Count
    labels_sha256: str
    seed: Annotated[int, Field(ge=-LARGEST_SEED, le=LARGEST_SEED)]
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = None  # older runs do not tell
    settings: dict[str, Any]
    preset: str | None = None
    asked: Asked | None = None  # older runs do not tell
    pace: PaceRecord | None = None
    lengthened: list[dict[str, Count]] = Field(default_factory=list)  # the steps at which it had been finished before
    replanned: list[PlanBefore] = Field(default_factory=list)


class Divergence(Record):
    """diverged.json."""

    network: str
    step: Count
    losses: dict[str, str]


class PseudoLabelReport(Record):
    unlabelled: Count
    kept: Count
    right: float | None
    threshold: float


class PseudoLabels(RootModel[dict[str, PseudoLabelReport]]):
    """pseudo_labels.json: a report by stage."""


class Examples(Record):
    """examples.json."""

    names: list[str]
    hashes: list[str]
    truth: list[str]
    labels: list[str]

    @model_validator(mode="after")
    def _of_one_length(self) -> Examples:
        if len({len(self.names), len(self.hashes), len(self.truth), len(self.labels)}) > 1:
            raise ValueError("its lists have different lengths")
        return self


class Metrics(Record):
    """metrics.json."""

    results: list[dict[str, Any]]


class Result(Record):
    """One of the results in metrics.json, as far as it must be whole to be quoted."""

    scale: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    samples: Count
    sampler: str
    evaluations: Count
    k: Count
    features: str
    features_sha256: str
    reference: str
    reference_per_class: Count
    intra_fid: float | None
    biased: bool
    intervals: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)] | None] | None


def diverged(run: Path) -> dict[str, Any] | None:
    """Where a loss left the finite numbers, if one did: {"network", "step", "losses"}."""
    return read_if_there(run / "diverged.json", Divergence)


def pseudo_labels(run: Path) -> dict[str, Any] | None:
    """How many labels the classifier gave and how many are right, by stage."""
    return read_if_there(run / "pseudo_labels.json", PseudoLabels)


def metrics(run: Path) -> dict[str, Any] | None:
    """What `selfcal evaluate` found, the newest first; None before."""
    return read_if_there(run / "metrics.json", Metrics)


def read_config(file: Path) -> dict[str, Any]:
    """config.json, whose settings must be such as this version understands."""
    config: dict[str, Any] = read_record(file, Config)
    classifier = config["settings"].get("classifier")
    if isinstance(classifier, dict) and classifier.get("network") == "ncsnpp":
        classifier.setdefault("head", "pooled")  # a run from before there was a choice
    try:
        Settings.model_validate(config["settings"])
    except (ValidationError, RecursionError) as error:
        raise SelfcalError(f"{file} cannot be read: settings.{first_problem(error)}") from None
    return config
