"""Names for what is not whole yet: `.3f9ac1d2e4b5a697.writing`, beside the file or folder that it becomes.

Nobody can foresee them, and they are opened exclusively: no link that somebody laid is followed. Their writer holds a
lock on them, which the system takes from a process when it dies; whoever writes into the same folder next clears what
nobody holds.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

NAME = re.compile(r"\.[0-9a-f]{16}\.writing")
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
OWN = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | getattr(os, "O_BINARY", 0)


def is_temporary(name: str) -> bool:
    return bool(NAME.fullmatch(name))


@contextmanager
def file_in(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file to write to; gone afterwards, unless it was given another name."""
    clear_leftovers(folder)
    path, handle = _own_file(folder)
    stream = _stream(handle)
    try:
        yield path, stream
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)  # half a file is of no use, and on a full disk in the way
        with suppress(OSError):
            stream.close()  # a full disk has been told of already


@contextmanager
def folder_in(folder: Path) -> Iterator[Path]:
    """A new folder; gone afterwards, unless it was given another name."""
    clear_leftovers(folder)
    path, handle = _own_folder(folder)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def clear_leftovers(folder: Path) -> None:
    """What killed writers left in this folder goes; what somebody is writing stays."""
    names: list[str] = []
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if is_temporary(name)]
    for name in names:
        with suppress(OSError):
            _clear(folder / name)


def _stream(handle: int) -> BinaryIO:
    return os.fdopen(handle, "w+b")


def _own_file(folder: Path) -> tuple[Path, int]:
    while True:
        path = _new_name(folder)
        handle = os.open(path, OWN, 0o666)
        if _is_ours(handle, path):
            return path, handle
        os.close(handle)


def _own_folder(folder: Path) -> tuple[Path, int]:
    while True:
        path = _new_name(folder)
        path.mkdir()
        try:
            handle = os.open(path, os.O_RDONLY | NO_LINK)
        except FileNotFoundError:  # cleared before it was held
            continue
        if _is_ours(handle, path):
            return path, handle
        os.close(handle)


def _new_name(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(8)}.writing"


def _is_ours(handle: int, path: Path) -> bool:
    """Held, and not cleared by somebody in the moment before, for whose end this waits."""
    _held(handle, wait=True)
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _held(handle: int, wait: bool = False) -> bool:
    """Whether the lock is ours now; where the system or the disk knows no locks, it never is."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _clear(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0))
    try:
        if not _held(handle):
            return
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    finally:
        os.close(handle)
