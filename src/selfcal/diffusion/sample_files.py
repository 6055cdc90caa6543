"""How samples become files: the ending of a name says which, and no earlier file is ever in danger.

out/            PNGs in a folder for each class, grid.png, and manifest.json: which folder is which class
out.zip         the same in one file
out.npz         the numbers: x in [−1, 1], y, class names
out.png         one picture: all of them under the names of their classes
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced, write_arrays, write_bytes, write_folder
from selfcal.core.version import __version__
from selfcal.diffusion.pictures import captioned_grid, pixels, png

FILES = (".npz", ".zip", ".png")
GRID, MANIFEST = "grid.png", "manifest.json"
ODD = re.compile(r'[/\\:*?"<>|]')  # in names of folders, on one system or another
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # no folder of Windows can be called so
LONGEST_NAME = 200  # bytes


class Sampled(Protocol):
    """What is written; `Samples` is one."""

    @property
    def x(self) -> Tensor: ...
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


def write(samples: Sampled, path: Path) -> None:
    """As the ending says; a file of that name is replaced."""
    check_target(path, samples.x.ndim == 4, replace=True)
    with surfaced(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[ending(path)](samples, path)


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


def files(samples: Sampled) -> Iterator[tuple[str, bytes]]:
    """What a folder or a .zip holds: (path in it, content), the manifest first."""
    names, y = folder_names(samples.classes), samples.y.numpy()
    yield MANIFEST, (json.dumps(manifest(samples, names), indent=1, ensure_ascii=False) + "\n").encode()
    yield GRID, picture(samples)
    for c in np.unique(y).tolist():
        for i, image in enumerate(pixels(samples.x[samples.y == c].numpy())):
            yield f"{names[c]}/{i:05d}.png", png(as_image(image))


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
    return png(captioned_grid(samples.x.numpy(), samples.y.numpy(), samples.classes))


def as_image(values: np.ndarray) -> Image.Image:
    """(C, H, W) bytes -> a grey or colour image."""
    return Image.fromarray(values[0] if len(values) == 1 else values.transpose(1, 2, 0))


def _arrays(samples: Sampled, path: Path) -> None:
    made = np.array(json.dumps(samples.made, ensure_ascii=False))
    names = np.array(samples.classes)
    write_arrays(path, {"x": samples.x.numpy(), "y": samples.y.numpy(), "classes": names, "made": made})


def _archive(samples: Sampled, path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:  # PNGs are compressed already
        for name, content in files(samples):
            archive.writestr(zipfile.ZipInfo(name), content)
    write_bytes(path, stream.getvalue())


WRITERS = {
    "": lambda samples, path: write_folder(path, files(samples)),
    ".npz": _arrays,
    ".zip": _archive,
    ".png": lambda samples, path: write_bytes(path, picture(samples)),
}
