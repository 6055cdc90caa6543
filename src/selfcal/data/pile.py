"""The pixels of many image files: all of one size, all grey or all colour; broken ones are all named at once."""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError, listed
from selfcal.core.files import reason
from selfcal.core.progress import bar, say
from selfcal.core.reading import check_size
from selfcal.data import images
from selfcal.data.decoded import LARGE, Kept
from selfcal.data.images import Header, Unreadable
from selfcal.data.pixels import Pixels

DARK = 32  # of 255: 16-bit images that stay below it were meant to be brighter
USUAL_SIZES = (256, 128, 64, 32, 16, 8)


@dataclass(frozen=True)
class Pile:
    """The files that could be read, in the order given, their images, and what is wrong with the other files."""

    train: list[Path]
    test: list[Path]
    x: Pixels
    x_test: Pixels
    broken: dict[Path, str]
    notes: list[str]


def read(train: list[Path], test: list[Path], root: Path, size: int | None = None, skip_broken: bool = False) -> Pile:
    """Headers first: size and colour are the whole pile's. Colour if any of the training images is.

    The pixels of a large pile are kept in the user's cache, and come from there the next time.
    """
    kept = Kept.of(root, [*train, *test], len(train), size, skip_broken)
    there = _from_cache(kept, train, test, root)
    if there is not None:
        return there
    headers, broken = _headers([*train, *test])
    if size is None:
        _check_sizes(headers, root, {} if skip_broken else broken)
    work = Decoding(train, test, root, size, skip_broken, headers, broken)
    if math.prod(work.shape) > LARGE:
        with kept.alone():
            there = _from_cache(kept, train, test, root) or _into_cache(kept, work)
        if there is not None:
            return there
    return work.in_memory()


@dataclass
class Decoding:
    """A pile on its way: what the headers say, and what has turned out to be broken."""

    train: list[Path]
    test: list[Path]
    root: Path
    size: int | None
    skip_broken: bool
    headers: dict[Path, Header]
    broken: dict[Path, str]

    @property
    def grey(self) -> bool:
        return all(self.headers[file].grey for file in self.train if file in self.headers)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all images together."""
        first = next(iter(self.headers.values()), Header(1, 1, True, False))
        height, width = (self.size, self.size) if self.size else (first.height, first.width)
        shape = len(self.headers), 1 if self.grey else 3, height, width
        check_size(shape, str(self.root), 1)
        return shape

    def in_memory(self) -> Pile:
        values = np.empty(self.shape, dtype=np.uint8)

        def put(place: int, pixels: np.ndarray) -> None:
            values[place] = pixels

        about = self.decoded(put)
        return _pile(torch.as_tensor(values[: about["images"]]), about, self.train, self.test, self.root)

    def into(self, stream: BinaryIO) -> dict[str, Any]:
        with bar(f"reading {self.root}", len(self.headers)) as tick:

            def put(place: int, pixels: np.ndarray) -> None:
                stream.write(pixels.tobytes())
                tick(1, "images")

            return self.decoded(put)

    def decoded(self, put: Callable[[int, np.ndarray], None]) -> dict[str, Any]:
        """One image after the other, broken ones left out; returns what there is to know of them all."""
        grey, (_, *shape), found, brightest = self.grey, self.shape, dict[Path, Header](), None
        for file, header in self.headers.items():
            try:
                pixels = images.pixels(file, grey, self.size)
                if pixels.shape != tuple(shape):  # turned by EXIF that only shows behind the pixels
                    raise Unreadable(
                        f"upright, it is {pixels.shape[2]}×{pixels.shape[1]}; the others {shape[2]}×{shape[1]}"
                    )
            except Unreadable as problem:
                self.broken[file] = str(problem)
                continue
            put(len(found), pixels)
            found[file] = header
            if header.deep:
                brightest = max(brightest or 0, int(pixels.max()))
        return {"images": len(found), "shape": shape, **self._about(found, grey, brightest)}

    def _about(self, found: dict[Path, Header], grey: bool, brightest: int | None) -> dict[str, Any]:
        broken = {file: self.broken[file] for file in [*self.train, *self.test] if file in self.broken}
        if broken and not self.skip_broken:
            raise SelfcalError(_broken_in_words(broken, self.root))
        if not any(file in found for file in self.train):
            reasons = _reasons(broken, self.root, 5)
            raise SelfcalError(f"none of the {len(self.train)} images in {self.root} can be read: {reasons}")
        # where the only colour was in broken files, all are grey
        grey = grey or all(found[file].grey for file in self.train if file in found)
        notes = _notes(found, not grey, self.size, [file for file in self.test if file in found], brightest)
        if broken:
            notes.insert(0, f"skipped, since they cannot be read: {_reasons(broken, self.root)}")
        return {"grey": grey, "broken": {_name(file, self.root): why for file, why in broken.items()}, "notes": notes}


def _into_cache(kept: Kept, work: Decoding) -> Pile | None:
    """None where the cache cannot be written: then it has to go without."""
    try:
        kept.write(work.into)
    except OSError as error:
        say(f"{kept.pixels} cannot be written ({reason(error)}); the images are held in memory")
        return None
    return _from_cache(kept, work.train, work.test, work.root)


def _from_cache(kept: Kept, train: list[Path], test: list[Path], root: Path) -> Pile | None:
    there = kept.mapped()
    if there is None:
        return None
    mapping, about = there
    try:
        everything = Pixels.mapped(mapping, (about["images"], *about["shape"]))
        return _pile(everything.stored, about, train, test, root, mapping)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        say(f"{kept.record} is damaged ({reason(error)}); the images are read again")
        return None


def _pile(
    stored: Tensor,
    about: dict[str, Any],
    train: list[Path],
    test: list[Path],
    root: Path,
    mapping: mmap.mmap | None = None,
) -> Pile:
    broken = {root / name: str(why) for name, why in about["broken"].items()}
    kept, kept_test = ([file for file in files if file not in broken] for files in (train, test))
    if len(kept) + len(kept_test) != len(stored):
        raise ValueError("it tells of other images")
    everything = Pixels(stored[:, :1] if about["grey"] else stored, mapping)
    x, x_test = everything.some(slice(len(kept))), everything.some(slice(len(kept), None))
    return Pile(kept, kept_test, x, x_test, broken, [str(note) for note in about["notes"]])


def _headers(files: list[Path]) -> tuple[dict[Path, Header], dict[Path, str]]:
    headers, broken = {}, {}
    for file in files:
        try:
            headers[file] = images.header(file)
        except Unreadable as problem:
            broken[file] = str(problem)
    return headers, broken


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
    headers: dict[Path, Header], colour: bool, size: int | None, test: list[Path], brightest: int | None
) -> list[str]:
    """brightest: value of the 16-bit images, if there are any."""
    notes = []
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
    if brightest is not None and brightest < DARK:
        notes.append(
            f"the 16-bit images are dark, the brightest value is about {brightest * 257} of 65535: if they were "
            "meant to be brighter, rescale the files"
        )
    return notes
