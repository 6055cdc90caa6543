"""Processes that take turns: a lock that the system takes from a process when it dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from selfcal.core.errors import SelfcalError


@contextmanager
def in_turn(folder: Path, name: str) -> Iterator[None]:
    """Processes that read, change and write one file wait for each other; where there are no locks, nobody waits."""
    lock: Any = FileLock(own_lock(folder, f".{name}.lock"))
    try:
        lock.acquire()
    except (OSError, NotImplementedError):  # what cannot be written is told by whoever writes it
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def own_lock(folder: Path, name: str) -> Path:
    """A lock file is emptied when it is opened: it must not be a link to something else."""
    if (folder / name).is_symlink():
        raise SelfcalError(f"{folder / name} is a link, which is not followed; remove it")
    return folder / name
