"""How samples become files: the ending of a name says which, and no earlier file is ever in danger.

out/            PNGs in a folder for each class, grid.png, and manifest.json: which folder is which class
out.zip         the same in one file
out.npz         the numbers: x in [−1, 1], y, class names
out.png         one picture: all of them under the names of their classes
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.files import (
    make_folder,
    surfaced,
    write_arrays_in_parts,
    write_bytes,
    write_folder,
    write_numbered,
    writing,
)
from selfcal.core.version import __version__
from selfcal.diffusion.pictures import captioned_grid, pixels, png, shown_of_each

FILES = (".npz", ".zip", ".png")
GRID, MANIFEST = "grid.png", "manifest.json"
ODD = re.compile(r'[/\\:*?"<>|]')  # in names of folders, on one system or another
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # no folder of Windows can be called so
LONGEST_NAME = 200  # bytes


class Sampled(Protocol):
    """What is written, in the order of y and some at a time; `Samples` and a `Drawing` are such."""

    def parts(self) -> Iterable[Tensor]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...  # of one of them
    @property
    def y(self) -> Tensor: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def made(self) -> dict[str, Any]: ...


def ending(path: Path) -> str:
    """.npz, .zip or .png in small letters; "" for a folder. Any other ending is refused: it promises something else."""
    suffix = path.suffix.lower()
    if suffix in FILES:
        return suffix
    if re.fullmatch(r"\.[a-z][a-z0-9]{0,4}", suffix) and not path.exists():  # what exists is refused or taken below
        raise SelfcalError(
            f"{path}: samples are not written as {path.suffix}; give a name that ends in .npz, .zip or .png, "
            "or a folder's name without an ending"
        )
    return ""


def check_target(path: Path, is_image: bool, replace: bool = False) -> None:
    """Before the work: can the samples be written there, without touching other files?"""
    kind = ending(path)
    if kind != ".npz" and not is_image:
        raise SelfcalError(f"points cannot be saved as images; give --out a name that ends in .npz, not {path}")
    if kind and path.is_dir():
        raise SelfcalError(f"{path} is a folder; give --out another name")
    if kind and path.exists() and not replace:
        raise SelfcalError(f"{path} exists already and is not written over; give --out another name, or remove it")
    if not kind and path.is_dir() and any(path.iterdir()):
        raise SelfcalError(f"the folder {path} is not empty; give --out another name")
    for parent in path.parents if kind else [path, *path.parents]:
        if parent.is_file():
            raise SelfcalError(f"{parent} is a file, not a folder; give --out another name")


def write(samples: Sampled, path: Path, within: Path | None = None, new: bool = False) -> Passing:
    """As the ending says; a file of that name is replaced. Returns what a picture of them can be made of.

    within: the folder, perhaps a stranger's, that no link may lead out of. new: nothing may have come there meanwhile.
    """
    check_target(path, len(samples.shape) == 3, replace=not new)
    passing, path = Passing(samples), path.resolve() if path.is_symlink() and path.is_dir() else path
    with surfaced(f"cannot write {path}"):
        make_folder(path.parent, within or path.parent)
        WRITERS[ending(path)](passing, path, new)
    return passing


def write_next(samples: Sampled, run: Path) -> tuple[Passing, Path]:
    """RUN/samples/set-001, or the first number that is free in the end: others may be sampling, too."""
    folder, passing = run / "samples", Passing(samples)
    with surfaced(f"cannot write to {folder}"):
        make_folder(folder, within=run)
        return passing, write_numbered(lambda: next_folder(folder), files(passing))


class Passing:
    """Samples as they pass by, none of them held but the first ones of each class, for a picture."""

    def __init__(self, samples: Sampled) -> None:
        self.samples, self.counts = samples, np.bincount(samples.y.numpy(), minlength=len(samples.classes))
        self.each = shown_of_each(int((self.counts > 0).sum()))
        self.seen = np.zeros_like(self.counts)
        self.first: list[tuple[np.ndarray, int]] = []

    def __iter__(self) -> Iterator[tuple[Tensor, list[tuple[int, int]]]]:
        """(some of them, of each its class and its number in that)."""
        for start, part in running(self.samples.parts()):
            places = []
            for image, c in zip(part, self.samples.y[start : start + len(part)].tolist(), strict=True):
                if self.seen[c] < self.each and part.ndim == 4:
                    self.first.append((image.numpy().copy(), c))
                places.append((c, int(self.seen[c])))
                self.seen[c] += 1
            yield part, places

    def picture(self) -> bytes:
        """Of those that have passed by."""
        x, y = np.stack([image for image, _ in self.first]), np.array([c for _, c in self.first])
        return png(captioned_grid(x, y, self.samples.classes, counts=self.counts.tolist()))


def running(parts: Iterable[Tensor]) -> Iterator[tuple[int, Tensor]]:
    """(how many came before, some more)."""
    start = 0
    for part in parts:
        yield start, part
        start += len(part)


def next_folder(parent: Path) -> Path:
    """parent/set-001, or the first number that is free."""
    taken = [int(m[1]) for p in (parent.iterdir() if parent.is_dir() else ()) if (m := re.match(r"set-(\d+)", p.name))]
    return parent / f"set-{max(taken, default=0) + 1:03d}"


def folder_names(classes: Sequence[str]) -> list[str]:
    """A folder for each class, named after it, all different on every system: names can come from files that others
    wrote, and must neither lead elsewhere nor meet."""
    used, found = {GRID, MANIFEST}, dict[int, str]()
    by_plainness = sorted(range(len(classes)), key=lambda i: (plain(classes[i], i) != classes[i], i))
    for i in by_plainness:  # a class that can be called as it is, is, whatever the others become
        name, number = plain(classes[i], i), 2
        while name.casefold() in used:
            name, number = f"{plain(classes[i], i)}-{number}", number + 1
        used.add(name.casefold())
        found[i] = name
    return [found[i] for i in range(len(classes))]


def plain(name: str, position: int) -> str:
    """The name, or where no folder can be called so, its position."""
    is_plain = name.isprintable() and not ODD.search(name) and len(name.encode("utf-8", "replace")) <= LONGEST_NAME
    is_plain = is_plain and name == name.strip() and bool(name.strip(".")) and name[:1] != "." and name[-1:] != "."
    return name if is_plain and not DEVICES.fullmatch(name) else f"class-{position}"


def files(passing: Passing) -> Iterator[tuple[str, bytes]]:
    """What a folder or a .zip holds: (path in it, content), the manifest first."""
    names = folder_names(passing.samples.classes)
    yield MANIFEST, (json.dumps(manifest(passing.samples, names), indent=1, ensure_ascii=False) + "\n").encode()
    for part, places in passing:
        for image, (c, number) in zip(pixels(part.numpy()), places, strict=True):
            yield f"{names[c]}/{number:05d}.png", png(as_image(image))
    yield GRID, passing.picture()


def manifest(samples: Sampled, names: Sequence[str]) -> dict[str, Any]:
    """Which folder is which class, and how the images were made."""
    counts = np.bincount(samples.y.numpy(), minlength=len(names)).tolist()
    rows = [
        {"class": name, "folder": folder, "images": count}
        for name, folder, count in zip(samples.classes, names, counts, strict=True)
        if count
    ]
    return {"selfcal": __version__, "images": len(samples.y), "grid": GRID, "classes": rows, "made": samples.made}


def picture(samples: Sampled) -> bytes:
    passing = Passing(samples)
    for _ in passing:
        pass
    return passing.picture()


def as_image(values: np.ndarray) -> Image.Image:
    """(C, H, W) bytes -> a grey or colour image."""
    return Image.fromarray(values[0] if len(values) == 1 else values.transpose(1, 2, 0))


def _arrays(passing: Passing, path: Path, new: bool) -> None:
    samples = passing.samples
    made = np.array(json.dumps(samples.made, ensure_ascii=False))
    others = {"y": samples.y.numpy(), "classes": np.array(samples.classes), "made": made}
    write_arrays_in_parts(path, "x", len(samples.y), (part.numpy() for part, _ in passing), others, new)


def _archive(passing: Passing, path: Path, new: bool) -> None:
    with writing(path, new) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files(passing):  # PNGs are compressed already
            archive.writestr(zipfile.ZipInfo(name), content)


def _picture(passing: Passing, path: Path, new: bool) -> None:
    for _ in passing:
        pass
    write_bytes(path, passing.picture(), new)


WRITERS = {
    "": lambda passing, path, new: write_folder(path, files(passing)),
    ".npz": _arrays,
    ".zip": _archive,
    ".png": _picture,
}
