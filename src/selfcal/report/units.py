"""Large numbers and times as people say them."""

from __future__ import annotations


def scaled(number: float) -> str:
    """2.1e9 -> "2.1 G"."""
    for exponent, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**exponent:
            return f"{number / 10**exponent:.3g} {prefix}"
    return f"{number:.3g} "


def duration(hours: float) -> str:
    """0.01 -> "36 s"."""
    for unit, size in (("days", 24.0), ("h", 1.0), ("min", 1 / 60)):
        if hours >= 2 * size:
            return f"{hours / size:,.1f} {unit}"
    return f"{hours * 3600:.0f} s"
