"""Folders of images: class sub-folders, and/or `unlabeled/`, or a flat pile with a CSV of labels.

photos/cat/1.png  photos/dog/7.png  photos/unlabeled/123.png      class folders
photos/1.png  photos/2.png  …                                     flat; --labels labels.csv
photos/train/cat/…  photos/test/cat/…                             with a test split
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.data.dataset import Dataset, no_test
from selfcal.data.limits import LARGEST_IMAGE, check_inside, check_size
from selfcal.diffusion.scores import UNLABELED

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
HIDDEN = {"unlabeled", "unlabelled"}


def load(root: Path) -> Dataset:
    """All images below root, in the order of their names; all must have one size."""
    try:
        return _load(root)
    except OSError as error:  # a folder that vanished or may not be listed
        raise SelfcalError(f"{error.filename or root} cannot be read: {error.strerror or error}") from None


def _load(root: Path) -> Dataset:
    train = root / "train" if (root / "train").is_dir() else root
    test = root / "test" if train != root and (root / "test").is_dir() else None
    for split in (train, test):
        if split not in (None, root):
            check_inside(split, root)
    classes = _class_names(train)
    files, y = _listing(train, classes, root)
    if not files:
        raise SelfcalError(f"{train} holds no images ({', '.join(sorted(ENDINGS))})")
    mode = _common_mode(files)
    x = _pixels(files, mode)
    x_test, y_test = no_test(x)
    if test is not None:
        test_files, y_test = _listing(test, classes, root)
        x_test = _pixels(test_files, mode, like=(files[0], tuple(x.shape[1:]))) if test_files else x[:0]
    return Dataset(
        name=root.resolve().name,
        x=x,
        y=y,
        classes=classes,
        names=tuple(f.relative_to(train).as_posix() for f in files),
        x_test=x_test,
        y_test=y_test,
    )


def _class_names(root: Path) -> tuple[str, ...]:
    folders = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    for name in folders:
        if not name.isprintable():
            raise SelfcalError(f"the class folder {name!r} in {root} has a name that cannot be written; rename it")
    return tuple(f for f in folders if f not in HIDDEN)


def _listing(root: Path, classes: tuple[str, ...], whole: Path) -> tuple[list[Path], Tensor]:
    """Images of one split and their classes; no link may lead out of the whole data folder."""
    position = {name: i for i, name in enumerate(classes)}
    files, y = [], []
    groups = [root, *sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))]
    for group in groups:
        images = sorted(p for p in group.iterdir() if p.is_file() and p.suffix.lower() in ENDINGS and p.name[0] != ".")
        if group != root and group.name not in HIDDEN:
            if group.name not in position:
                raise SelfcalError(f"{group} is not one of the training classes ({', '.join(classes)})")
            if not images:
                raise SelfcalError(f"the class folder {group} holds no images; add some or remove it")
        for path in (group, *images):
            if path.is_symlink():
                check_inside(path, whole)
        files += images
        y += [position.get(group.name, UNLABELED) if group != root else UNLABELED] * len(images)
    return files, torch.as_tensor(y, dtype=torch.long)


def _open(file: Path) -> Image.Image:
    """Only by the readers of our own endings: Pillow would otherwise also try those that start other programs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(file, formats=FORMATS)
            if image.width * image.height > LARGEST_IMAGE:
                raise SelfcalError(f"{file} is {image.width}×{image.height} pixels large; resize or remove it")
            image.load()
        return image
    except SelfcalError:
        raise
    except Exception as error:  # Pillow's readers raise whatever a broken file makes them trip over
        said = str(error) or type(error).__name__
        raise SelfcalError(f"{file} cannot be read as an image ({said}); repair or remove it") from None


def _common_mode(files: list[Path]) -> str:
    """Grey only if the first image is: a pile is either grey or colour."""
    return "L" if _open(files[0]).mode in ("1", "L", "LA", "I", "I;16") else "RGB"


def _values(file: Path, mode: str) -> np.ndarray:
    image = _open(file)
    try:
        return np.asarray(image.convert(mode), dtype=np.uint8)
    except (ValueError, OSError, MemoryError) as error:
        raise SelfcalError(f"{file} cannot be read as an image ({error}); repair or remove it") from None


def _pixels(files: list[Path], mode: str, like: tuple[Path, tuple[int, ...]] | None = None) -> Tensor:
    """(N, C, H, W) in [−1, 1]; refuses the first file whose size differs from the one before."""
    first, shape = like or (files[0], None)
    pixels = None
    for i, file in enumerate(files):
        values = _values(file, mode)
        values = values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
        shape = shape or values.shape
        if values.shape != tuple(shape):
            raise SelfcalError(
                f"images have different sizes: {first} is {shape[2]}×{shape[1]}, "
                f"{file} is {values.shape[2]}×{values.shape[1]}; resize them to one size"
            )
        if pixels is None:
            check_size((len(files), *shape), str(file.parent))
            pixels = np.empty((len(files), *shape), dtype=np.uint8)
        pixels[i] = values
    return torch.as_tensor(pixels).float() / 127.5 - 1.0
