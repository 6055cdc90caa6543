"""What was read, in words: said before a training, when mending it still costs nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.core.errors import listed
from selfcal.data.dataset import Dataset
from selfcal.data.label_files import is_label_file
from selfcal.data.labels import ALL
from selfcal.data.naming import twins
from selfcal.diffusion.scores import UNLABELED

MOST_CLASSES = 20  # named one by one


def in_words(data: Dataset, visible: Tensor, labels: str, asked: bool) -> list[str]:
    """How many of what, which labels are used, and all that the reader had to say. asked: the user chose the labels."""
    lines = [examples_in_words(data), _classes(data, visible), _labels(data, visible, labels, asked), *data.notes]
    for names in twins(data.classes):
        counts = [f"{name!r} ({int((data.y == data.classes.index(name)).sum())})" for name in names]
        lines.append(f"WARNING: {' and '.join(counts)} differ only in case, and are taken as {len(names)} classes")
    return lines


def examples_in_words(data: Dataset) -> str:
    test = f", {len(data.x_test)} test images" if len(data.x_test) else ""
    if not data.is_image:
        return f"{data.name}: {len(data.x)} points of {data.shape[0]} numbers"
    channels, height, width = data.shape
    return f"{data.name}: {len(data.x)} images of {width}×{height}, {'grey' if channels == 1 else 'colour'}{test}"


def _classes(data: Dataset, visible: Tensor) -> str:
    """By the labels that are used; those of hidden ones are nobody's business until the end."""
    counts = torch.bincount(visible[visible != UNLABELED], minlength=len(data.classes)).tolist()
    if len(counts) > MOST_CLASSES:
        return f"{len(counts)} classes, with {min(counts)} to {max(counts)} labels each"
    return f"labels used: {listed(f'{name} {count}' for name, count in zip(data.classes, counts, strict=True))}"


def _labels(data: Dataset, visible: Tensor, labels: str, asked: bool) -> str:
    shown, known = int((visible != UNLABELED).sum()), int((data.y != UNLABELED).sum())
    rest = len(data.x) - shown
    hidden = f"; {known - shown} labels more are kept back, to judge by" if known > shown else ""
    if is_label_file(labels):
        where = f"{shown} labels from {labels}"
    elif labels == ALL:
        where = f"all {shown} labels that there are"
    else:
        where = f"{shown} of {known} labels, by {'' if asked else 'the default '}--labels {labels}"
    others = f"{rest} images are used without a label" if rest else "every image is labelled"
    default = ""
    if not asked:
        default = (
            "; --labels 4/class, 0.2 or all shows it others"
            if data.published
            else "; --labels 4/class or 0.02 would hide the rest, as an experiment"
        )
    return f"{where}; {others}{hidden}{default}"
