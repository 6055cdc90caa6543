"""What label files call things: which example a name means, and which class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from selfcal.data.dataset import Dataset

TRAIN, TEST, SKIPPED = "train", "test", "skipped"
Place = tuple[str, int]
"""(TRAIN, 3): the fourth training example."""


def place_of(name: str, classes: Sequence[str]) -> int | None:
    """The class of that name; written in another case, if only one is meant by it."""
    if name in classes:
        return list(classes).index(name)
    alike = [i for i, known in enumerate(classes) if known.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def twins(classes: Sequence[str]) -> list[list[str]]:
    """Names that differ in nothing but case."""
    groups: dict[str, list[str]] = {}
    for name in classes:
        groups.setdefault(name.casefold(), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


@dataclass(frozen=True)
class Names:
    """Finds the example that a label file means: by its path from the folder of training images or from the data's
    root, from the label file or from here, by an absolute path, or by a file name that only one of them has."""

    data: Dataset
    table: Path  # the label file

    def find(self, entry: str) -> list[Place]:
        """One, if all is well; none, if there is no such example; several, if it could be any of them."""
        tidy = _tidy(entry)
        for name in (entry, tidy, self._from_root(tidy)):
            if name in self.paths:
                return [self.paths[name]]
        return [] if "/" in tidy else self.by_name.get(tidy, [])

    @cached_property
    def paths(self) -> dict[str, Place]:
        """Unique spellings."""
        files, data = self.data.files, self.data
        found: dict[str, Place] = {}
        if files is not None:
            found |= {name: (SKIPPED, i) for i, name in enumerate(files.skipped)}
            found |= {name: (TEST, i) for i, name in enumerate(files.test)}
            found |= {name: (TRAIN, i) for i, name in enumerate(files.train)}
        return found | {name: (TRAIN, i) for i, name in enumerate(data.names)}

    @cached_property
    def by_name(self) -> dict[str, list[Place]]:
        """Without folders, with and without ending."""
        found: dict[str, dict[Place, None]] = {}
        for name, place in self.paths.items() if self.data.files is not None else ():
            for short in {PurePosixPath(name).name, PurePosixPath(name).stem}:
                found.setdefault(short, {})[place] = None
        return {name: list(places) for name, places in found.items()}

    def _from_root(self, entry: str) -> str:
        """A path as seen from the data's root, taken from the label file's folder, or from here; "" if it leads
        elsewhere. No file is looked at."""
        if self.data.files is not None:
            root = os.path.abspath(self.data.files.root)
            for base in (self.table.parent, Path()):
                path = os.path.abspath(base / entry)
                for top in (root, os.path.realpath(root)):
                    inside = path[len(top) + 1 :]
                    if path.startswith(top + os.sep) and inside in self.paths:
                        return inside
        return ""


def _tidy(entry: str) -> str:
    """ ".\\\\cat\\\\1.png" -> "cat/1.png"."""
    return entry.replace("\\", "/").removeprefix("./")
