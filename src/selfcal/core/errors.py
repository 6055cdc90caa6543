"""The one error type of selfcal: something the user can mend, said in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SelfcalError(Exception):
    """Bad input: names the thing, the value found, the value expected, and what to do."""


def unknown(kind: str, name: str, known: Iterable[str]) -> SelfcalError:
    """An error for a name that is not in a list, with the nearest one that is."""
    known = sorted(known)
    begun = [k for k in known if name and k.startswith(name.lower())]
    near = begun or get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = f"known: {', '.join(known)}" if len(known) <= 20 or not near else ""
    return SelfcalError(f"unknown {kind} {name!r}; {hint}{listed}".strip())
