"""Which labels a method may see."""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.data.dataset import Dataset
from selfcal.data.limits import LARGEST_TEXT
from selfcal.diffusion.scores import UNLABELED


def reveal(data: Dataset, labels: str | float, seed: int) -> tuple[Dataset, Tensor]:
    """The labels a method sees, (N,) with UNLABELED where hidden.

    labels is a fraction (0.02), a count per class ("4/class") or a CSV "file,label". Splits are
    stratified and depend on data and seed alone, so every method sees the same ones. The data comes
    back too, since a CSV may be the first to say which classes there are.
    """
    text = str(labels).strip()
    if text.lower().endswith(".csv"):
        return _from_csv(data, Path(text))
    if not data.classes:
        raise SelfcalError(
            f"{data.name} has no labels at all; give it class folders (an .npz: an array y), "
            "or pass a CSV with the columns file,label to --labels (of an .npz, file is the row's number)"
        )
    _check_classes(data)
    return data, _stratified(data, text, seed)


def _check_classes(data: Dataset) -> None:
    if len(data.classes) < 2:
        raise SelfcalError(f"{data.name} has only the class {data.classes[0]!r}; guidance needs at least two")


def _stratified(data: Dataset, text: str, seed: int) -> Tensor:
    per_class = _per_class_rule(text)
    rng = torch.Generator().manual_seed(seed)
    visible = torch.full_like(data.y, UNLABELED)
    for c, name in enumerate(data.classes):
        members = (data.y == c).nonzero()[:, 0]
        count = per_class(len(members))
        if count > len(members):
            raise SelfcalError(
                f"--labels {text} asks for {count} labels of class {name!r}, which has {len(members)} images"
            )
        if count < 1:
            raise SelfcalError(
                f"--labels {text} leaves class {name!r} ({len(members)} images) without a label; "
                "at least one per class is needed, for instance --labels 1/class"
            )
        visible[members[torch.randperm(len(members), generator=rng)[:count]]] = c
    return visible


def _per_class_rule(text: str):  # type: ignore[no-untyped-def]
    """From the user's words to a function: images in a class -> labels shown."""
    if match := re.fullmatch(r"(-?\d+)/class", text):
        count = int(match.group(1))
        if count < 1:
            raise SelfcalError(f"--labels {text}: at least 1 label per class is needed")
        return lambda images: count
    try:
        fraction = float(text)
    except ValueError:
        raise SelfcalError(
            f"--labels {text!r} is neither a fraction (0.02), nor a count (4/class), nor a .csv file"
        ) from None
    if not 0 < fraction <= 1:
        raise SelfcalError(f"--labels {text}: a fraction lies above 0 and at most at 1 (for counts write 4/class)")
    return lambda images: round(fraction * images)


def _from_csv(data: Dataset, path: Path) -> tuple[Dataset, Tensor]:
    rows = _read_csv(path)
    position = {name: i for i, name in enumerate(data.names)}
    classes = data.classes or tuple(sorted(set(rows.values())))
    index = {name: i for i, name in enumerate(classes)}
    visible = torch.full_like(data.y, UNLABELED)
    for file, label in rows.items():
        if file not in position:
            raise SelfcalError(
                f"{path} names {file!r}, which is not in {data.name} (for instance {data.names[0]!r} is)"
            )
        if label not in index:
            raise SelfcalError(f"{path} gives {file!r} the label {label!r}; the classes are {', '.join(classes)}")
        visible[position[file]] = index[label]
    for c, name in enumerate(classes):
        if not (visible == c).any():
            raise SelfcalError(f"class {name!r} has no label in {path}; every class needs at least one")
    _check_classes(dataclasses.replace(data, classes=classes))
    truth = torch.where(data.y == UNLABELED, visible, data.y)  # a label we were given is also known
    return dataclasses.replace(data, classes=classes, y=truth), visible


def _read_csv(path: Path) -> dict[str, str]:
    if path.exists() and not path.is_file():
        raise SelfcalError(f"{path} is not a file; --labels takes a CSV with the columns file,label")
    try:
        if path.stat().st_size > LARGEST_TEXT:
            raise SelfcalError(f"{path} holds more than {LARGEST_TEXT >> 20} MiB; a label file is a line per image")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True)
            if not {"file", "label"} <= set(reader.fieldnames or ()):
                raise SelfcalError(f"{path} must start with a header line that names the columns file and label")
            rows: dict[str, str] = {}
            for row in reader:
                file, label = (row["file"] or "").strip(), (row["label"] or "").strip()
                if not file or not label:
                    raise SelfcalError(f"{path} line {reader.line_num} lacks a file or a label")
                if rows.setdefault(file, label) != label:
                    raise SelfcalError(f"{path} gives {file!r} two labels, {rows[file]!r} and {label!r}")
    except FileNotFoundError:
        raise SelfcalError(f"the label file {path} does not exist") from None
    except (OSError, ValueError, csv.Error) as error:
        raise SelfcalError(f"{path} cannot be read as a CSV file: {error}") from None
    if not rows:
        raise SelfcalError(f"{path} has no rows")
    return rows
