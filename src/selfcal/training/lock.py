"""Whose a run directory is: this very run's, and one process's at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfcal import run as runs
from selfcal.core.errors import SelfcalError
from selfcal.core.files import reason, surfaced, write_json

LOCK = ".lock"
LEFT_OVER = {LOCK, ".config.json.writing"}  # by a process killed before it had written config.json
MAY_DIFFER = {"selfcal", "data.source", "labels"}  # versions and paths; the hashes beside them must agree


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Nobody else trains in this folder meanwhile: a lock that the system takes from a process when it dies.

    The file stays for good; it means something only while somebody holds it.
    """
    with surfaced(f"cannot write to {folder}"):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SelfcalError(
                f"another process is training in {folder}; wait until it is done, or choose another --out"
            ) from None
        except OSError as error:
            raise SelfcalError(f"cannot lock {folder / LOCK}: {reason(error)}") from None
        yield
    finally:
        os.close(handle)


@contextmanager
def claimed(out: Path, config: dict[str, Any]) -> Iterator[None]:
    """Make the run directory, or recognise it as this very run; refuse one that holds anything else."""
    check_same(out, config)  # before the lock file would be written into somebody else's folder
    with surfaced(f"cannot write to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with sole_owner(out):
        check_same(out, config)
        if not (out / "config.json").exists():
            with surfaced(f"cannot write to {out}"):
                write_json(out / "config.json", config)
        yield


def check_same(out: Path, config: dict[str, Any]) -> None:
    if (out / "config.json").exists():
        there = runs.load(out)
        complete = there.config | {
            "settings": there.settings.model_dump(mode="json")
        }  # settings added since have their defaults
        differing = sorted(set(differences(complete, config)) - MAY_DIFFER)
        if differing:
            named = ", ".join(differing[:6]) + (f" and {len(differing) - 6} more" if len(differing) > 6 else "")
            raise SelfcalError(f"{out} holds another run; it differs in {named}. Choose another --out, or remove it")
    elif out.exists() and (not out.is_dir() or any(p.name not in LEFT_OVER for p in out.iterdir())):
        raise SelfcalError(f"{out} already holds something that is not a run; choose another --out")


def differences(a: Any, b: Any, key: str = "") -> list[str]:
    """Dotted keys in which two configurations differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        names = sorted({*a, *b})
        return [d for n in names for d in differences(a.get(n), b.get(n), f"{key}.{n}" if key else n)]
    return [] if a == b else [key]
