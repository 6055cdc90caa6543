"""Which examples a run was trained on, one by one: so that a folder may grow, and what changed can be said.

RUN/examples.json holds the name, a hash, the class and the shown label of every training example of a folder or file.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.progress import say
from selfcal.data.dataset import Dataset
from selfcal.data.pixels import Examples as Pile
from selfcal.data.pixels import some
from selfcal.diffusion.scores import UNLABELED

FILE = "examples.json"
MOST = 500_000  # examples beyond which the file would be larger than it is worth
DIGITS = 16  # of a hash
ADVICE = (
    "sampling needs no data; to evaluate against the images as they are now add --anyway, "
    "or name the folder as it was with --data PATH"
)


@dataclass(frozen=True)
class Examples:
    """In the order of training; classes by their names, "" where unknown or hidden."""

    names: Sequence[str]
    hashes: Sequence[str]
    truth: Sequence[str]
    labels: Sequence[str]

    @classmethod
    def of(cls, data: Dataset, labels: Tensor) -> Examples:
        return cls(list(data.names), hashes_of(data.x), named(data.y, data.classes), named(labels, data.classes))

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Examples:
        return cls(**{field.name: record[field.name] for field in fields(cls)})

    def in_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Change:
    """Data that is not as it was: what is there now, what is known of before, and the run's config.json."""

    data: Dataset
    known: Examples | None
    config: Mapping[str, Any]

    def settled(self, said: str, anyway: bool) -> tuple[Dataset, Tensor]:
        """Examples and labels to go on with: those of the training where all are still there, else, if the user
        says so, all that are there now."""
        words, again = self.in_words(), self.as_trained()
        if again is not None:
            say(f"{said}: {words}; the images of the training are used")
            return again
        if not anyway or self.data.shape != tuple(self.config["data"]["shape"]):
            raise SelfcalError(f"{said}: {words}; {ADVICE}")
        say(f"{said}: {words}; used as it is now")
        return self.as_it_is()

    def as_trained(self) -> tuple[Dataset, Tensor] | None:
        """The very examples of the training, found among what is there now; None if one is missing."""
        if self.known is None:
            return None
        places = defaultdict[str, list[int]](list)
        for place, digest in enumerate(hashes_of(self.data.x)):
            places[digest].append(place)
        picked = [places[digest].pop(0) if places[digest] else -1 for digest in self.known.hashes]
        if -1 in picked:
            return None
        y, labels = (positions(part, self.classes) for part in (self.known.truth, self.known.labels))
        data = self.in_classes_of_the_run()
        data = replace(data, x=some(data.x, picked), y=y, names=tuple(self.known.names))
        return (data, labels) if data.sha256 == self.config["data"]["sha256"] else None

    def as_it_is(self) -> tuple[Dataset, Tensor]:
        """All that is there now; labels are those that were shown in the training."""
        data = self.in_classes_of_the_run()
        if self.known is None:  # nobody knows which labels were seen: none counts as hidden
            return data, data.y
        seen = dict(zip(self.known.hashes, self.known.labels, strict=True))
        labels = positions([seen.get(digest, "") for digest in hashes_of(data.x)], self.classes)
        return replace(data, y=torch.where(data.y == UNLABELED, labels, data.y)), labels

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.config["data"]["classes"])

    def in_classes_of_the_run(self) -> Dataset:
        """Classes that it does not know are unknown."""
        data = self.data
        y, y_test = (positions(named(part, data.classes), self.classes) for part in (data.y, data.y_test))
        return replace(data, y=y, y_test=y_test, classes=self.classes)

    def in_words(self) -> str:
        """What is there now and was not, and the other way round."""
        data, about = self.data, self.config["data"]
        if data.shape != tuple(about["shape"]):
            return f"examples are shaped {data.shape}, and were {tuple(about['shape'])}"
        if self.known is None:
            other = sorted({*data.classes} ^ {*about["classes"]})
            words = f"{len(data.x)} examples, where it was trained on {about['examples']}"
            return words + (f"; classes that differ: {listed(other)}" if other else "")
        now = dict(zip(data.names, hashes_of(data.x), strict=True))
        before = dict(zip(self.known.names, self.known.hashes, strict=True))
        parts = {
            "new": [n for n in now if n not in before],
            "missing": [n for n in before if n not in now],
            "changed": [n for n in now if n in before and now[n] != before[n]],
        }
        said = [f"{len(names)} {word} ({listed(names)})" for word, names in parts.items() if names]
        return ", ".join(said) or "the same images, with other classes"


def named(y: Tensor, classes: Sequence[str]) -> list[str]:
    return ["" if c == UNLABELED else classes[c] for c in y.tolist()]


def positions(names: Sequence[str], classes: Sequence[str]) -> Tensor:
    index = {name: i for i, name in enumerate(classes)}
    return torch.tensor([index.get(name, UNLABELED) for name in names], dtype=torch.long)


def hashes_of(x: Pile) -> list[str]:
    return [hashlib.sha256(one.contiguous().numpy().tobytes()).hexdigest()[:DIGITS] for one in x]


def listed(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
