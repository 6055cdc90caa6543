"""Which labels a method may see."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError, listed
from selfcal.data.dataset import Dataset
from selfcal.data.label_files import is_label_file
from selfcal.data.labelling import labelled_by
from selfcal.diffusion.scores import UNLABELED

ALL = "all"
USUAL = "0.02"  # of a published set, to learn what few labels can do
TABLES = ("labels", "label", "train_labels", "train", "annotations", "metadata")  # of several, the one called so


def reveal(data: Dataset, labels: str | float | None, seed: int) -> tuple[Dataset, Tensor]:
    """The labels a method sees, (N,) with UNLABELED where hidden.

    labels is "all", a fraction (0.02), a count per class ("4/class") or a table "file,label". Splits are
    stratified and depend on data and seed alone, so every method sees the same ones. The data comes
    back too, since a table may be the first to say which classes there are.
    """
    text = chosen(data, labels)
    if is_label_file(text):
        data, visible = labelled_by(data, Path(text))
    elif (data.y == UNLABELED).all():  # a flat pile, with a table in its folder
        data, visible = labelled_by(data, _needed_table(data))
    else:
        visible = data.y.clone()
    _check_classes(data, visible)
    return data, visible if is_label_file(text) or text == ALL else _stratified(data, text, seed)


def chosen(data: Dataset, labels: str | float | None, before: str | None = None) -> str:
    """What the user said, or what is meant by saying nothing: all labels that the user made, few of a published set.

    before: those of the run that is continued; it may be from when saying nothing always meant few.
    """
    if labels is not None:
        return str(labels).strip()
    if data.published or before == USUAL:
        return USUAL
    table = _table(data) if (data.y == UNLABELED).all() else None
    return ALL if table is None else str(table)


def _needed_table(data: Dataset) -> Path:
    table = _table(data)
    if table is None:
        raise SelfcalError(
            f"{data.name} has no labels at all; give it class folders (an .npz: an array y), "
            "or pass a CSV with the columns file,label to --labels (of an .npz, file is the row's number)"
            + (f"; is it --labels {beside}?" if (beside := _table_beside(data)) else "")
        )
    return table


def _table_beside(data: Dataset) -> Path | None:
    """One beside the data's folder is not taken unasked, since it may be another pile's."""
    if data.files is None:
        return None
    beside = data.files.root.absolute().parent
    found = sorted(path for path in beside.glob("*.[ct]sv") if path.stem.lower() in (*TABLES, data.name.lower()))
    return found[0] if found else None


def _table(data: Dataset) -> Path | None:
    """The table of labels that lies in the data's folder, if there is one."""
    found = () if data.files is None else data.files.label_files
    named = [path for path in found if path.stem.lower() in TABLES]
    if len(found) > 1 and len(named) != 1:
        raise SelfcalError(
            f"{data.name} holds several tables, {listed(path.name for path in found)}; say which has the labels, "
            f"for instance --labels {found[0]}"
        )
    return next(iter(named or found), None)


def _check_classes(data: Dataset, visible: Tensor) -> None:
    """Two at least, each with a labelled image."""
    if len(data.classes) < 2:
        (only,) = data.classes
        hidden = int((visible == UNLABELED).sum())
        rest = f"the {hidden} unlabelled images" if hidden else "others"
        raise SelfcalError(
            f"{data.name} has only the class {only!r}; guidance needs at least two: label some of {rest} as what "
            f"they are instead, for instance as a class 'not {only}', in a folder or a CSV of that name"
        )
    if lacking := [name for c, name in enumerate(data.classes) if not (data.y == c).any()]:
        raise SelfcalError(
            f"no training image of {data.name} is labelled {listed(map(repr, lacking))}; label one at least"
        )


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


def _per_class_rule(text: str) -> Callable[[int], int]:
    """From the user's words to a function: images in a class -> labels shown."""
    if match := re.fullmatch(r"(-?[0-9]{1,18})/class", text):
        wanted = int(match.group(1))
        if wanted < 1:
            raise SelfcalError(f"--labels {text}: at least 1 label per class is needed")
        return lambda images: wanted
    try:
        fraction = float(text)
    except ValueError:
        raise SelfcalError(
            f"--labels {text!r} is neither a fraction (0.02), nor a count (4/class), nor all, "
            "nor a .csv, .tsv or .txt file"
        ) from None
    if not 0 < fraction <= 1:
        raise SelfcalError(f"--labels {text}: a fraction lies above 0 and at most at 1 (for counts write 4/class)")
    return lambda images: round(fraction * images)


def judged_by(data: Dataset, table: str | Path) -> Dataset:
    """The data with labels that only judge: its truth where the table knows it. What a method sees is not changed."""
    return labelled_by(data, Path(table), judging=True)[0]
