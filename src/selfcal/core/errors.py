"""The one error type of selfcal: something the user can mend, said in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

Row = TypeVar("Row")


class SelfcalError(Exception):
    """Bad input: names the thing, the value found, the value expected, and what to do."""


def look_up(kind: str, name: str, table: Mapping[str, Row]) -> Row:
    """The row of that name; an unknown name is an error that offers the nearest one."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]


def unknown(kind: str, name: str, known: Iterable[str]) -> SelfcalError:
    """An error for a name that is not in a list, with the nearest one that is."""
    names = sorted(known)
    begun = [k for k in names if name and k.startswith(name.lower())]
    near = begun or get_close_matches(name.lower(), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = f"known: {', '.join(names)}" if len(names) <= 20 or not near else ""
    return SelfcalError(f"unknown {kind} {name!r}; {hint}{listed}".strip())


def listed(names: Iterable[str], most: int = 50) -> str:
    """All of them, so that they can be mended at once; a page of them where there are more than anybody reads."""
    every = list(names)
    rest = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + rest
