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

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.core.files import make_folder, read_json, write_json
from selfcal.core.reading import advising, as_written, checked
from selfcal.experiments.compare.protocol import Protocol
from selfcal.experiments.compare.records import RESTORE, Comparison
from selfcal.experiments.compare.tasks import Cell, folder_name
from selfcal.training.lock import check_claim, differences

MARK = "compare.json"


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
        check_claim(out, "comparison", MARK, lambda: conflicts(out, protocol))
        old = cls.read(out) if (out / MARK).exists() else cls(out, protocol, [], [])
        of_now = replace(old.protocol, score=protocol.score)  # it may have moved
        grid = cls(out, of_now, apart([*old.cells, *cells]), old.invocations)
        make_folder(out, within=out)
        return grid

    @classmethod
    def read(cls, out: Path) -> Grid:
        file = out / MARK
        if not file.is_file():
            raise SelfcalError(f"{out} is not a comparison: it has no {MARK}")
        with advising(RESTORE):
            about = in_pairs(read_json(file))
            checked(about, Comparison, file)
        with as_written(file, "selfcal compare", RESTORE):
            protocol = Protocol(**about["protocol"])
            return cls(out, protocol, [Cell(*cell) for cell in about["cells"]], about["invocations"])

    def save(self) -> None:
        cells = [[c.method, c.labels, c.seed] for c in self.cells]
        about = {"protocol": asdict(self.protocol), "cells": cells, "invocations": self.invocations}
        write_json(self.out / MARK, about)

    def outcomes(self) -> list[dict[str, Any]]:
        """Of the cells that have one, in the order of the cells."""
        return [found for c in self.cells if (found := c.read(self.out)) is not None]


def in_pairs(about: Any) -> Any:
    """JSON has lists where a cell is a tuple."""
    if isinstance(about, dict) and isinstance(about.get("cells"), list):
        return about | {"cells": [tuple(cell) if isinstance(cell, list) else cell for cell in about["cells"]]}
    return about


def conflicts(out: Path, protocol: Protocol) -> list[str]:
    """In what the comparison that is there differs from this one."""
    old = Grid.read(out).protocol
    complete = asdict(old) | {"settings": old.resolved.model_dump(mode="json")}  # those added since have defaults
    return [key for key in differences(complete, asdict(protocol)) if key not in ("data", "score_labels", "score")]


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
