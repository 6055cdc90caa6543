"""The pixels of many image files: all of one size, all grey or all colour; broken ones are all named at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selfcal.core.errors import SelfcalError, listed
from selfcal.data import images
from selfcal.data.images import Header, Unreadable
from selfcal.data.limits import check_size

DARK = 32  # of 255: 16-bit images that stay below it were meant to be brighter
USUAL_SIZES = (256, 128, 64, 32, 16, 8)


@dataclass(frozen=True)
class Pile:
    """The files that could be read, in the order given, and what is wrong with the others."""

    train: dict[Path, np.ndarray]  # (C, H, W) of bytes, views of one array
    test: dict[Path, np.ndarray]
    broken: dict[Path, str]
    notes: list[str]


def read(train: list[Path], test: list[Path], root: Path, size: int | None = None, skip_broken: bool = False) -> Pile:
    """Headers first: size and colour are the whole pile's. Colour if any of the training images is."""
    headers, broken = _headers([*train, *test])
    if size is None:
        _check_sizes(headers, root, {} if skip_broken else broken)
    grey = all(headers[file].grey for file in train if file in headers)
    values = _decoded(headers, broken, grey, size, str(root))
    broken = {file: broken[file] for file in [*train, *test] if file in broken}
    if broken and not skip_broken:
        raise SelfcalError(_broken_in_words(broken, root))
    headers = {file: header for file, header in headers.items() if file in values}
    if not any(file in headers for file in train):
        raise SelfcalError(f"none of the {len(train)} images in {root} can be read: {_reasons(broken, root, 5)}")
    if not grey and all(headers[file].grey for file in train if file in headers):
        values = {file: pixels[:1] for file, pixels in values.items()}  # the only colour was in broken files
    notes = _notes(headers, values, size, [file for file in test if file in headers])
    if broken:
        notes.insert(0, f"skipped, since they cannot be read: {_reasons(broken, root)}")
    kept, kept_test = ({file: values[file] for file in files if file in values} for files in (train, test))
    return Pile(kept, kept_test, broken, notes)


def _headers(files: list[Path]) -> tuple[dict[Path, Header], dict[Path, str]]:
    headers, broken = {}, {}
    for file in files:
        try:
            headers[file] = images.header(file)
        except Unreadable as problem:
            broken[file] = str(problem)
    return headers, broken


def _decoded(
    headers: dict[Path, Header], broken: dict[Path, str], grey: bool, size: int | None, where: str
) -> dict[Path, np.ndarray]:
    """Into one array; files that turn out to be broken are added to the others that are."""
    first = next(iter(headers.values()), Header(1, 1, True, False))
    shape = (1 if grey else 3, size or first.height, size or first.width)
    check_size((len(headers), *shape), where)
    values = np.empty((len(headers), *shape), dtype=np.uint8)
    found = {}
    for place, file in zip(values, headers, strict=True):
        try:
            pixels = images.pixels(file, grey, size)
            if pixels.shape != shape:  # turned by EXIF that only shows behind the pixels
                raise Unreadable(
                    f"upright, it is {pixels.shape[2]}×{pixels.shape[1]}; the others {shape[2]}×{shape[1]}"
                )
        except Unreadable as problem:
            broken[file] = str(problem)
        else:
            place[:] = pixels
            found[file] = place
    return found


def _check_sizes(headers: dict[Path, Header], root: Path, broken: dict[Path, str]) -> None:
    """Names every file that is not of the usual size, and says how to get on."""
    sizes = Counter((header.width, header.height) for header in headers.values())
    if len(sizes) < 2:
        return
    usual = sizes.most_common(1)[0][0]
    like = next(file for file, h in headers.items() if (h.width, h.height) == usual)
    odd = [f"{_name(f, root)} is {h.width}×{h.height}" for f, h in headers.items() if (h.width, h.height) != usual]
    more = f" and {sizes[usual] - 1} more are" if sizes[usual] > 1 else " is"
    least = min(min(size) for size in sizes)
    advice = next((size for size in USUAL_SIZES if size <= min(least, 64)), least)
    also = f" Besides, {_broken_in_words(broken, root)}" if broken else ""
    raise SelfcalError(
        f"the images of {root} have different sizes: {_name(like, root)}{more} {usual[0]}×{usual[1]}, "
        f"{listed(odd, 20)}; give --size N to use the middle square of each at N×N pixels, "
        f"for instance --size {advice}, or resize them to one size.{also}"
    )


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


def _reasons(broken: dict[Path, str], root: Path, most: int = 50) -> str:
    return listed((f"{_name(file, root)} ({why})" for file, why in broken.items()), most)


def _broken_in_words(broken: dict[Path, str], root: Path) -> str:
    if len(broken) == 1:
        ((file, why),) = broken.items()
        return f"{file} cannot be read as an image ({why}); repair or remove it, or give --skip-broken to do without it"
    return (
        f"{len(broken)} files of {root} cannot be read as images: {_reasons(broken, root)}; "
        "repair or remove them, or give --skip-broken to do without them"
    )


def _notes(
    headers: dict[Path, Header], values: dict[Path, np.ndarray], size: int | None, test: list[Path]
) -> list[str]:
    notes = []
    colour = next(iter(values.values())).shape[0] == 3
    if size is not None:
        small = sum(min(h.width, h.height) < size for h in headers.values())
        cut = sum((h.width, h.height) != (size, size) for h in headers.values())
        notes.append(f"--size {size}: of {cut} images the middle square, resized" if cut else f"all are {size}×{size}")
        if small:
            notes.append(
                f"{small} images are smaller than {size}×{size} and were enlarged: a smaller --size is sharper"
            )
    if colour and (strays := sum(header.grey for header in headers.values())):
        notes.append(f"{strays} grey files among colour ones are read as colour")
    if not colour and (strays := sum(not headers[file].grey for file in test)):
        notes.append(f"{strays} colour test images are read as grey, as all training images are")
    deep = [file for file, header in headers.items() if header.deep]
    if deep and (brightest := max(int(values[file].max()) for file in deep)) < DARK:
        notes.append(
            f"the 16-bit images are dark, the brightest value is about {brightest * 257} of 65535: if they were "
            "meant to be brighter, rescale the files"
        )
    return notes
