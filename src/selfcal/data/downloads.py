"""Where files that a user downloaded are looked for, and whether they arrived whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from selfcal.core.errors import SelfcalError
from selfcal.core.files import cache_folder


def places() -> list[Path]:
    """$SELFCAL_DATA if set, ./data, and the user's cache."""
    named = os.environ.get("SELFCAL_DATA")
    return [*([Path(named)] if named else []), Path("data"), cache_folder()]


def find(name: str, wanted: Iterable[str], page: str, files: str = "") -> Path:
    """The first of the wanted files or folders that is in one of the places; files: what a wanted folder holds."""
    names = list(wanted)
    for place in places():
        for file in names:
            if (place / file).exists():
                return place / file
    into = " or ".join(str(place / names[0] if files else place) for place in places())
    raise SelfcalError(
        f"{name} is not on this machine: download {files or names[0]} from {page} into {into}, "
        f"or set SELFCAL_DATA to the folder that has {names[0]}"
    )


def check_md5(path: Path, expected: str) -> None:
    """Against the sum its publisher gives: a broken download is told apart from a broken reader."""
    with path.open("rb") as stream:
        md5 = hashlib.file_digest(stream, "md5").hexdigest()
    if md5 != expected:
        raise SelfcalError(f"{path} is not the published file: its MD5 is {md5}, not {expected}; download it again")
