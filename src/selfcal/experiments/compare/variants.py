"""Methods with a setting varied: `--vary terms.sc_weight=1,10` makes rows "cg-sc-all terms.sc_weight=1" and …=10."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from selfcal.core.errors import SelfcalError, unknown
from selfcal.core.settings import keys

SHARED = ("data", "noise", "score")  # sections of what all methods of a seed have in common


def base(method: str) -> str:
    """The row of the method table that a variant is of."""
    return method.split(" ")[0]


def changes_of(method: str) -> dict[str, str]:
    """ "cg-sc-all terms.sc_weight=10" -> {"terms.sc_weight": "10"}."""
    return dict(part.partition("=")[::2] for part in method.split(" ")[1:])


def variants(methods: Sequence[str], vary: Iterable[str]) -> list[str]:
    """Every method with every combination of the values."""
    choices = [values_of(text) for text in vary]
    return [" ".join([method, *chosen]) for method in methods for chosen in product(*choices)]


def values_of(text: str) -> list[str]:
    """ "terms.sc_weight=1,10" -> ["terms.sc_weight=1", "terms.sc_weight=10"]."""
    key, equals, listed = text.partition("=")
    key, values = key.strip(), [value.strip() for value in listed.split(",") if value.strip()]
    if not equals or not values:
        raise SelfcalError(f"--vary {text!r} is not of the form key=value,value")
    if key not in keys():
        raise unknown("setting", key, keys())
    if key.split(".")[0] in SHARED:
        raise SelfcalError(
            f"--vary {key}: all methods share data, noise and score model; compare such runs in folders of their own"
        )
    if strange := [value for value in values if not value.replace(".", "").replace("-", "").replace("+", "").isalnum()]:
        raise SelfcalError(f"--vary {key}: the value {strange[0]!r} cannot be part of a folder's name")
    return [f"{key}={value}" for value in dict.fromkeys(values)]
