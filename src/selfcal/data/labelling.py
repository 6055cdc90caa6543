"""A table of labels held against a data set: each row's example and class, or all that is wrong with the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError, listed
from selfcal.data.dataset import Dataset
from selfcal.data.label_files import Row, read_rows
from selfcal.data.naming import SKIPPED, TEST, TRAIN, Names, Place, place_of
from selfcal.diffusion.scores import UNLABELED

MOST = 20  # culprits in one sentence


def labelled_by(data: Dataset, path: Path, judging: bool = False) -> tuple[Dataset, Tensor]:
    """The data with what the table knows, and the table's labels of the training examples, (N,).

    The table says which classes there are, unless folders (or an array) do. judging: it may leave classes out.
    """
    names = Names(data, path)
    rows = _by_place(read_rows(path, lambda entry: bool(names.find(entry))), names, path)
    data = _with_classes(data, rows, path)
    places = _positions(rows, data, path)
    _check_agreement(rows, places, data, path)
    y, y_test = torch.full_like(data.y, UNLABELED), data.y_test.clone()
    for (split, i), c in places.items():
        (y if split == TRAIN else y_test)[i] = c
    if not judging:
        _check_complete(data, y, path)
    truth = torch.where(data.y == UNLABELED, y, data.y)  # a label we were given is also known
    return dataclasses.replace(data, y=truth, y_test=y_test, notes=(*data.notes, *_notes(rows, data, path))), y


def _by_place(rows: list[Row], names: Names, path: Path) -> dict[Place, Row]:
    """The labelled rows by their examples; files that are not there, meant twice or labelled twice are all named."""
    found: dict[Place | str, Row] = {}
    strange, vague, twice = list[str](), list[str](), list[str]()
    for row in rows:
        places = names.find(row.file)
        if row.label is None or (len(places) == 1 and places[0][0] == SKIPPED):
            continue
        before = found.setdefault(places[0] if len(places) == 1 else row.file, row)
        if before is row and len(places) != 1:
            (vague if places else strange).append(repr(row.file))
        if before.label != row.label:
            twice.append(f"{row.file!r} two labels, {before.label!r} and {row.label!r}")
    name = names.data.name
    if twice:
        raise SelfcalError(f"{path} gives {listed(twice, MOST)}; keep one of them")
    if strange:
        verb = "is" if len(strange) == 1 else "are"
        raise SelfcalError(
            f"{path} names {listed(strange, MOST)}, which {verb} not in {name} "
            f"(for instance {names.data.names[0]!r} is)"
        )
    if vague:
        raise SelfcalError(
            f"{path} names {listed(vague, MOST)}, as several images of {name} are called; add the folder"
        )
    if not found:
        raise SelfcalError(f"{path} has no rows with a label")
    return {place: row for place, row in found.items() if not isinstance(place, str)}


def _with_classes(data: Dataset, rows: dict[Place, Row], path: Path) -> Dataset:
    """Classes that training examples have are fixed; otherwise they are those of the table, and test images follow."""
    if (data.y != UNLABELED).any():
        return data
    classes = tuple(sorted({row.label for (split, _), row in rows.items() if split == TRAIN and row.label}))
    if not classes:
        raise SelfcalError(f"{path} labels no training image of {data.name}")
    y_test = data.y_test.clone()
    for c, name in enumerate(data.classes):  # of folders with test images
        place = place_of(name, classes)
        if place is None:
            raise SelfcalError(
                f"test images of {data.name} are of class {name!r}, of which {path} labels no training image; "
                f"its classes are {listed(classes, MOST)}"
            )
        y_test[data.y_test == c] = place
    return dataclasses.replace(data, classes=classes, y_test=y_test)


def _positions(rows: dict[Place, Row], data: Dataset, path: Path) -> dict[Place, int]:
    places = {place: place_of(row.label or "", data.classes) for place, row in rows.items()}
    if strange := [f"{rows[p].file!r} the label {rows[p].label!r}" for p, c in places.items() if c is None]:
        raise SelfcalError(f"{path} gives {listed(strange, MOST)}; the classes are {listed(data.classes, MOST)}")
    return {place: c for place, c in places.items() if c is not None}


def _check_agreement(rows: dict[Place, Row], places: dict[Place, int], data: Dataset, path: Path) -> None:
    known = {TRAIN: data.y, TEST: data.y_test}
    wrong = []
    for (split, i), c in places.items():
        before = int(known[split][i])
        if before not in (UNLABELED, c):
            wrong.append(f"{rows[split, i].file} is {rows[split, i].label!r} there and {data.classes[before]!r} here")
    if wrong:
        raise SelfcalError(
            f"{path} contradicts the classes of {data.name}: {listed(wrong, MOST)}; "
            "correct the table, or move the files"
        )


def _check_complete(data: Dataset, y: Tensor, path: Path) -> None:
    lacking = [repr(name) for c, name in enumerate(data.classes) if not (y == c).any()]
    if lacking:
        others = f", nor have {listed(lacking[1:], MOST)}" if lacking[1:] else ""
        raise SelfcalError(f"class {lacking[0]} has no label in {path}{others}; every class needs at least one")


def _notes(rows: dict[Place, Row], data: Dataset, path: Path) -> list[str]:
    spelled = sorted({row.label for row in rows.values() if row.label and row.label not in data.classes})
    read = [
        f"{name!r} as {data.classes[place]!r}"
        for name in spelled
        if (place := place_of(name, data.classes)) is not None
    ]
    return [f"{path.name} is read with {listed(read, MOST)}"] if read else []
