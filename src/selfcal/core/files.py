"""Files that survive: written durably and atomically, read as if anybody could have written them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from selfcal.core.errors import SelfcalError
from selfcal.core.temporary import NO_LINK, OWN, file_in, folder_in

LARGEST_JSON = 2**26  # bytes; a run's own files are a thousandth of it


def cache_folder() -> Path:
    """The user's cache: what was dear to compute and can be computed again."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "selfcal"  # others are to be ignored


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_in_place(path: Path, content: bytes) -> None:
    """A file of a folder that `writing_folder` puts onto the disk; all others are written by `write_bytes`."""
    with path.open("xb") as stream:
        stream.write(content)


@contextmanager
def writing(path: Path, new: bool = False) -> Iterator[BinaryIO]:
    """A file that grows: durably, too, and readers see the old one or the whole of the new one, never half of it.

    A link of that name is replaced, not followed. new: a file of that name is an error, also one that came meanwhile.
    """
    with _telling(path), file_in(path.parent) as (beside, stream):
        yield stream
        stream.flush()
        os.fsync(stream.fileno())  # some disks only say now that they are full
        _name_new(beside, path) if new else os.replace(beside, path)
    sync(path.parent)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """What cannot be written is called by its name, not by the one it has meanwhile, and not by none."""
    try:
        yield
    except OSError as error:
        if error.filename is None or ".writing" in str(error.filename):
            error.filename, error.filename2 = str(path), None
        raise


def _name_new(beside: Path, path: Path) -> None:
    """The name, unless something has it."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # a disk that knows no second names
        os.close(os.open(path, OWN, 0o666))
        os.replace(beside, path)


def append_line(path: Path, line: str) -> None:
    """To a file whose readers pass over half a line. Through a link nothing is written."""
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK
    with os.fdopen(os.open(path, how, 0o666), "ab") as stream:
        stream.write(line.encode() + b"\n")


def write_bytes(path: Path, content: bytes, new: bool = False) -> None:
    """As `writing`."""
    with writing(path, new) as stream:
        stream.write(content)


@contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """A folder to fill under another name; it gets its own when all of it is on the disk. `path` must be free or
    empty."""
    with _telling(path), folder_in(path.parent) as beside:
        yield beside
        for inner in (*beside.rglob("*"), beside):
            sync(inner)
        beside.rename(path)
    sync(path.parent)


def write_folder(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """A folder of files by their paths in it: there with all of them, or not at all. It must be free or empty."""
    with writing_folder(path) as beside:
        for name, content in files:
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            write_in_place(beside / name, content)


def write_numbered(path: Callable[[], Path], files: Iterable[tuple[str, bytes]]) -> Path:
    """The same, under the first name that is free when it is done: others may be writing there, too."""
    first = path()
    with folder_in(first.parent) as shelf:
        write_folder(shelf / "whole", files)
        while True:
            try:
                (shelf / "whole").rename(found := path())
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    sync(first.parent)
    return found


@contextmanager
def filling_folder(path: Path, last: str) -> Iterator[Path]:
    """Files for a folder that may hold others, which stay; each comes whole, and `last` after all the others."""
    if not path.exists():
        make_folder(path.parent, within=path.parent)
        with writing_folder(path) as beside:
            yield beside
        return
    with folder_in(path) as beside:
        yield beside
        names = sorted((p.relative_to(beside) for p in beside.rglob("*") if p.is_file()), key=lambda n: str(n) == last)
        for name in names:
            sync(beside / name)
            os.replace(beside / name, make_folder((path / name).parent, within=path) / name.name)
        sync(path)


def make_folder(folder: Path, within: Path) -> Path:
    """The folder with its parents, on the disk. within: the folder that the user named, which no link may lead out
    of: it can come from a stranger."""
    check_inside(folder, within)
    for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
        missing.mkdir(exist_ok=True)
        sync(missing.parent)
    return folder


def check_inside(path: Path, within: Path) -> None:
    """No link on the way may lead out of the folder."""
    try:
        real = path.resolve()
        inside = real.is_relative_to(within.resolve())
    except (OSError, RuntimeError):
        raise SelfcalError(f"{path} is a link that leads nowhere") from None
    if not inside:
        raise SelfcalError(f"{path} is a link that leads out of {within}, to {real}; nothing is written there")


def write_text(path: Path, text: str, new: bool = False) -> None:
    """As `write_bytes`."""
    write_bytes(path, text.encode("utf-8"), new)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A compressed .npz, as `write_bytes`."""
    with writing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        _put_arrays(archive, arrays)


def write_arrays_in_parts(
    path: Path, name: str, count: int, parts: Iterable[np.ndarray], others: Mapping[str, np.ndarray], new: bool = False
) -> None:
    """The same, with one array of `count` rows that need not be in memory whole."""
    with writing(path, new) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        with _entry(archive, name) as target:
            for i, part in enumerate(parts):
                if i == 0:
                    about = np.lib.format.header_data_from_array_1_0(part[:0])
                    np.lib.format.write_array_header_1_0(target, about | {"shape": (count, *part.shape[1:])})
                target.write(part.tobytes())
        _put_arrays(archive, others)


def _put_arrays(archive: zipfile.ZipFile, arrays: Mapping[str, np.ndarray]) -> None:
    for name, values in arrays.items():
        with _entry(archive, name) as target:
            np.lib.format.write_array(target, np.asanyarray(values), allow_pickle=False)


@contextmanager
def _entry(archive: zipfile.ZipFile, name: str) -> Iterator[Any]:
    about = zipfile.ZipInfo(f"{name}.npy")  # without a time: the same numbers are the same file
    about.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(about, "w", force_zip64=True) as target:
        yield target


def write_json(path: Path, value: Any) -> None:
    """As `write_text`."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """What a JSON file says; whatever is wrong with it is one sentence."""
    try:
        size = path.stat().st_size
        if size > LARGEST_JSON:
            raise SelfcalError(f"{path} holds {size} bytes, far more than selfcal ever writes there")
        return json.loads(path.read_bytes())
    except RecursionError:
        raise SelfcalError(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise SelfcalError(f"{path} cannot be read: {reason(error)}") from None


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def surfaced(what: str, then: str = "") -> Iterator[None]:
    """A full disk, a read-only folder: one sentence that says what could not be done, and what to do then."""
    try:
        yield
    except OSError as error:
        raise SelfcalError(f"{what}: {reason(error)}" + (f"; {then}" if then else "")) from None


def reason(error: Exception) -> str:
    """ "No space left on device" rather than "[Errno 28] No space left on device: '/…'"."""
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "it is a link, which is not followed"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
