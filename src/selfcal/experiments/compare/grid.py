"""What is compared, and where it lies.

    DIR/compare.json                         the protocol, the cells, the time spent
    DIR/data.npz                             real examples, for the page
    DIR/scores/seed-0/                       the unconditional model of a seed, shared by every method
    DIR/cells/cg-sc-all/0.02/seed-0/         a run directory
    DIR/cells/cg-sc-all/0.02/seed-0.json     its outcome: state, seconds, numbers
    DIR/cells/cg-sc-all/0.02/seed-0.npz      its first samples

The page is made of compare.json, data.npz and the outcomes; the runs may be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings
from selfcal.methods.table import find
from selfcal.training.checkpoint import write_json
from selfcal.training.fit import differences

FINISHED = ("done", "diverged")  # a divergence is a result, too: it is not tried again


@dataclass(frozen=True, order=True)
class Cell:
    """One training and its evaluation."""

    method: str
    labels: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method} · {self.labels} · seed {self.seed}"

    def run(self, out: Path) -> Path:
        return out / "cells" / self.method / folder_name(self.labels) / f"seed-{self.seed}"

    def outcome(self, out: Path) -> Path:
        return self.run(out).with_name(f"seed-{self.seed}.json")

    def pictures(self, out: Path) -> Path:
        return self.run(out).with_name(f"seed-{self.seed}.npz")

    def state(self, out: Path) -> str:
        """done, diverged, failed or waiting."""
        file = self.outcome(out)
        if not file.exists():
            return "waiting"
        outcome = read_json(file)
        return "diverged" if outcome.get("diverged") else str(outcome["state"])

    def needs_score(self, settings: Settings) -> bool:
        return any(stage.name == "score" for stage in find(self.method).stages(settings))


@dataclass(frozen=True)
class Protocol:
    """What all cells have in common; numbers of another protocol do not belong into the same folder."""

    data: str
    data_sha256: str
    preset: str
    settings: dict[str, Any]
    samples: int
    score_labels: str  # the score model sees no labels; its run is opened with these

    @property
    def resolved(self) -> Settings:
        return Settings.model_validate(self.settings)


@dataclass
class Grid:
    """A folder with a protocol and cells, which later commands may add to."""

    out: Path
    protocol: Protocol
    cells: list[Cell]
    invocations: list[dict[str, Any]]

    @classmethod
    def open(cls, out: Path, protocol: Protocol, cells: Sequence[Cell]) -> Grid:
        """A new grid, or the one that is there with these cells added; refuses another protocol."""
        if (out / "compare.json").exists():
            grid = cls.read(out)
            there = asdict(grid.protocol) | {"settings": grid.protocol.resolved.model_dump(mode="json")}
            unlike = differences(there, asdict(protocol))  # settings added since have their defaults
            unlike = [key for key in unlike if key not in ("data", "score_labels")]
            if unlike:
                named = ", ".join(unlike[:6]) + (f" and {len(unlike) - 6} more" if len(unlike) > 6 else "")
                raise SelfcalError(f"{out} holds a comparison that differs in {named}; choose another --out")
            grid.cells = apart([*grid.cells, *cells])
            return grid
        if out.exists() and (not out.is_dir() or any(not p.name.startswith(".") for p in out.iterdir())):
            raise SelfcalError(f"{out} already holds something that is not a comparison; choose another --out")
        chosen = apart(cells)
        out.mkdir(parents=True, exist_ok=True)
        return cls(out, protocol, chosen, [])

    @classmethod
    def read(cls, out: Path) -> Grid:
        file = out / "compare.json"
        if not file.is_file():
            raise SelfcalError(f"{out} is not a comparison: it has no compare.json")
        about = read_json(file)
        try:
            protocol = Protocol(**about["protocol"])
            return cls(out, protocol, [Cell(*cell) for cell in about["cells"]], about["invocations"])
        except (KeyError, TypeError) as error:
            raise SelfcalError(f"{file} cannot be read: {error}") from None

    def save(self) -> None:
        cells = [[c.method, c.labels, c.seed] for c in self.cells]
        about = {"protocol": asdict(self.protocol), "cells": cells, "invocations": self.invocations}
        write_json(self.out / "compare.json", about)

    def score_run(self, seed: int) -> Path:
        return self.out / "scores" / f"seed-{seed}"

    def outcomes(self) -> list[dict[str, Any]]:
        """Of the cells that have one, in the order of the cells."""
        return [read_json(c.outcome(self.out)) for c in self.cells if c.outcome(self.out).exists()]


def apart(cells: Sequence[Cell]) -> list[Cell]:
    """Each once; refuses two choices of labels that would share a folder."""
    names: dict[str, str] = {}
    for cell in cells:
        if names.setdefault(folder_name(cell.labels), cell.labels) != cell.labels:
            first = names[folder_name(cell.labels)]
            raise SelfcalError(f"--labels {first} and {cell.labels} would get the same folder; rename one of them")
    return list(dict.fromkeys(cells))


def canonical(labels: str | float) -> str:
    """ ".02", "0.020" and "2e-2" are one choice of labels."""
    try:
        return repr(float(labels))
    except ValueError:
        return str(labels)


def folder_name(labels: str) -> str:
    """ "4/class" -> "4-per-class"; a CSV -> its name."""
    if labels.lower().endswith(".csv"):
        return Path(labels).stem
    return labels.replace("/", "-per-")


def read_json(file: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SelfcalError(f"{file} cannot be read: {error}") from None
    return value
