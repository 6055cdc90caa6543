"""Numbers where they enter: bounds that a machine can hold, memory and disks that are asked before they are taken."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from selfcal.core.errors import SelfcalError

LARGEST_SEED = 2**62  # of either sign; torch's own random states take a little more
MOST_STEPS = 10**12  # of a training: no machine lives to see them
MOST_SAMPLER_STEPS = 10**6  # whose noise levels are held as a list
MOST_SEEDS = 10**4  # of one study
MOST_MINUTES = 10**7  # twenty years
MOST_JOBS = 2**10  # processes side by side


def check_whole(name: str, value: int, least: int, most: int) -> int:
    """The number, if it lies there. name: as the user typed it, "--seeds"."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SelfcalError(f"{name} {value!r} is not a whole number")
    if not least <= value <= most:
        needed = f"at least {least} is needed" if value < least else f"at most {in_words(most)} can be"
        raise SelfcalError(f"{name} {in_words(value)}: {needed}")
    return value


def check_seed(value: int, name: str = "--seed") -> int:
    return check_whole(name, value, -LARGEST_SEED, LARGEST_SEED)


def check_name(path: str | Path) -> str:
    """A path that goes into files, which are UTF-8; names on a disk can be any bytes."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise SelfcalError(
            f"the name {path} is not written in UTF-8, and files could not tell of it; rename it"
        ) from None
    return str(path)


def check_minutes(value: float) -> float:
    """A time above 0 that somebody can wait for."""
    if not 0 < value <= MOST_MINUTES:  # also where it is not a number
        raise SelfcalError(f"--minutes {value:g}: a time above 0 is needed, and at most {MOST_MINUTES:,}")
    return value


def in_words(value: int) -> str:
    """Digits that one can read; of very many, how many there are."""
    digits = value.bit_length() * 3 // 10
    return str(value) if digits < 25 else f"(a number of about {digits} digits)"


def check_memory(wanted: float, what: str, advice: str) -> None:
    """Before anything is allocated. wanted: bytes, rather too few than too many: nothing possible is refused."""
    there = free_memory()
    if wanted > there:
        raise SelfcalError(
            f"{what} would take at least {wanted / 2**30:,.1f} GiB of memory, and {there / 2**30:,.1f} GiB are free; "
            f"{advice}"
        )


def check_disk(wanted: float, folder: Path, what: str, advice: str) -> None:
    """The same of the disk that a folder is on, or will be."""
    there = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
    free = shutil.disk_usage(there).free
    if wanted > free:
        raise SelfcalError(
            f"{what} would take at least {wanted / 2**30:,.1f} GiB, and {there} has {free / 2**30:,.1f} GiB free; "
            f"{advice}"
        )


def free_memory() -> float:
    """Bytes of this machine that could be had: free ones, and those that only hold copies of files."""
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return float("inf")  # a system that does not tell
