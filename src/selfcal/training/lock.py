"""Whose a folder is: this very run's or comparison's, and one process's at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from selfcal.core.errors import SelfcalError, listed
from selfcal.core.files import reason
from selfcal.core.temporary import is_temporary
from selfcal.core.turns import own_lock

LOCK = ".lock"
patience = 0.0  # seconds to wait for whoever holds a folder; on a cluster, a node that died may hold it for a while


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Nobody else trains in this folder meanwhile: a lock that the system takes from a process when it dies.

    The file stays for good; it means something only while somebody holds it.
    """
    lock = FileLock(own_lock(folder, LOCK), timeout=patience)
    try:
        lock.acquire()
    except Timeout:
        raise SelfcalError(
            f"another process is training in {folder}; wait until it is done, or choose another --out"
        ) from None
    except (OSError, NotImplementedError) as error:
        raise SelfcalError(f"cannot write to {folder}: {LOCK}: {reason(error)}") from None
    try:
        yield
    finally:
        lock.release()


def is_owned(folder: Path) -> bool:
    """Whether somebody trains there at this moment, as far as one can tell."""
    if not (folder / LOCK).is_file() or (folder / LOCK).is_symlink():
        return False
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except (Timeout, OSError, NotImplementedError) as problem:
        return isinstance(problem, Timeout)
    lock.release()
    return False


def check_claim(out: Path, what: str, mark: str, differing: Callable[[], Sequence[str]] = tuple) -> None:
    """`out` must be free, or be this very thing already: what a folder of its kind is known by is its `mark`.

    what: "run" or "comparison", for the sentence. mark: "" for one that must be new. differing: names of what
    is there otherwise than wanted.
    """
    if mark and (out / mark).exists():
        if names := list(differing()):
            raise SelfcalError(
                f"{out} holds another {what}; it differs in {listed(names, 6)}. Choose another --out, or remove it"
            )
        return
    if out.exists() and (not out.is_dir() or not is_free(out)):
        raise SelfcalError(f"{out} already holds something that is not a {what}; choose another --out")


def is_free(folder: Path) -> bool:
    """Whether there is nothing in it but what a process leaves that is killed before it has written anything."""
    return all(
        p.name == LOCK or is_temporary(p.name) or (p.is_dir() and not p.is_symlink() and is_free(p))
        for p in folder.iterdir()
    )


def differences(a: Any, b: Any, key: str = "") -> list[str]:
    """Dotted keys in which two configurations differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        names = sorted({*a, *b})
        return [d for n in names for d in differences(a.get(n), b.get(n), f"{key}.{n}" if key else n)]
    return [] if a == b else [key]
