"""Files that survive: written durably and atomically, read as if anybody could have written them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from selfcal.core.errors import SelfcalError

LARGEST_JSON = 2**26  # bytes; a run's own files are a thousandth of it


def cache_folder() -> Path:
    """The user's cache: what was dear to compute and can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfcal"


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_in_place(path: Path, content: bytes) -> None:
    """Onto the disk itself before this returns; some disks only say at fsync that they are full.

    For files whose folder has no name yet; all others are written by `write_bytes`.
    """
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that grows: durably, too, and readers see the old one or the whole of the new one, never half of it."""
    beside = path.with_name(f".{path.name}.writing")
    try:
        with beside.open("w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.rename(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)  # half a file is of no use, and on a full disk in the way
        raise
    sync(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """As `writing`."""
    with writing(path) as stream:
        stream.write(content)


def write_folder(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """A folder of files by their paths in it: there with all of them, or not at all. It must be free or empty."""
    beside = path.with_name(f".{path.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)  # of a process that was killed
    try:
        beside.mkdir(parents=True)
        for name, content in files:
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            write_in_place(beside / name, content)
        for folder in {beside, *(p for p in beside.rglob("*") if p.is_dir())}:
            sync(folder)
        beside.rename(path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A compressed .npz, as `write_bytes`."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    write_bytes(path, stream.getvalue())


def write_arrays_in_parts(
    path: Path, name: str, count: int, parts: Iterable[np.ndarray], others: Mapping[str, np.ndarray]
) -> None:
    """The same, with one array of `count` rows that need not be in memory whole."""
    with writing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:

        @contextmanager
        def entry(name: str) -> Iterator[Any]:
            about = zipfile.ZipInfo(f"{name}.npy")  # without a time: the same numbers are the same file
            about.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(about, "w", force_zip64=True) as target:
                yield target

        with entry(name) as target:
            for i, part in enumerate(parts):
                if i == 0:
                    about = np.lib.format.header_data_from_array_1_0(part[:0])
                    np.lib.format.write_array_header_1_0(target, about | {"shape": (count, *part.shape[1:])})
                target.write(part.tobytes())
        for other, values in others.items():
            with entry(other) as target:
                np.lib.format.write_array(target, values, allow_pickle=False)


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
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
