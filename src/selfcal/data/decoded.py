"""The pixels of a large folder, decoded once: kept in the user's cache and mapped into memory from there.

A file of bytes, and beside it a record of what they are. The name tells which folder and which state of its files
(names, sizes, times): after any change they are decoded again. Never trusted: verified at each use.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from selfcal.core.errors import SelfcalError
from selfcal.core.files import cache_folder, file_sha256, make_folder, read_json, reason, write_json, writing
from selfcal.core.progress import say
from selfcal.core.turns import in_turn

READER = 1  # changes whenever the same files would be read as other pixels
LARGE = 200 * 2**20  # bytes from which on a folder's pixels are kept


@dataclass(frozen=True)
class Kept:
    """Where the pixels of a folder in one state are kept, and what of it is true of its other states."""

    folder: str  # of the data, in a few digits
    state: str

    @classmethod
    def of(cls, root: Path, files: Sequence[Path], *how: object) -> Kept:
        """how: the pixels also depend on it."""
        where = hashlib.sha256(repr((os.path.abspath(root), *how)).encode())
        state = hashlib.sha256(repr((READER, where.hexdigest())).encode())
        for file in files:
            about: tuple[int, ...] = ()
            with suppress(OSError):  # of a link that leads nowhere there is nothing to know
                found = file.stat()
                about = found.st_size, found.st_mtime_ns, found.st_ctime_ns
            state.update(repr((file.relative_to(root).as_posix(), about)).encode())
        return cls(where.hexdigest()[:12], state.hexdigest()[:32])

    @property
    def pixels(self) -> Path:
        return cache_folder() / f"pixels-{self.folder}-{self.state}.bytes"

    @property
    def record(self) -> Path:
        return self.pixels.with_suffix(".json")

    def mapped(self) -> tuple[mmap.mmap, dict[str, Any]] | None:
        """The bytes and what was noted of them, if they are whole."""
        if not self.record.exists():
            return None
        try:
            about = read_json(self.record)
            if not isinstance(about, dict) or file_sha256(self.pixels) != about.get("sha256"):
                raise ValueError("it is not as it was written")
            with self.pixels.open("rb") as stream:
                return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY), about
        except (OSError, ValueError, SelfcalError) as error:
            say(f"{self.pixels} is damaged ({reason(error)}); the images are read again")
            return None

    def write(self, fill: Callable[[BinaryIO], dict[str, Any]]) -> None:
        """What `fill` writes, and the record that it returns; those of other states of the folder go."""
        with writing(self.pixels) as stream:
            about = fill(stream)
        write_json(self.record, about | {"sha256": file_sha256(self.pixels)})
        for old in cache_folder().glob(f"pixels-{self.folder}-*"):
            if self.state not in old.name:
                with suppress(OSError):
                    old.unlink()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Processes that read the same folder wait for the first; without a cache to write to, each reads by itself."""
        with suppress(OSError):
            make_folder(cache_folder(), within=cache_folder())
        with in_turn(cache_folder(), f"pixels-{self.folder}"):
            yield
