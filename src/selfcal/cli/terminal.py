"""What all commands share: the app they belong to, where they print, how they read repeated options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter, Token
from rich.console import Console

from selfcal import __version__
from selfcal.core.errors import SelfcalError

app = App(
    name="selfcal",
    help="Class-conditional image generation when only a few images are labelled.",
    version=__version__,
    suppress_keyboard_interrupt=False,
)
out_console = Console()
problem_console = Console(stderr=True)

Changes = Annotated[list[str] | None, Parameter(name="--set", negative=())]
"""--set key=value, any number of times."""

Options = Annotated[list[str] | None, Parameter(name="--option", negative=())]
"""--option key=value, any number of times."""


def _whole(kind: type, tokens: Sequence[Token]) -> int:
    """Unasked, cyclopts would round 1.7 to 2."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


Whole = Annotated[int, Parameter(converter=_whole)]
"""A count, a number of steps or a seed."""


def number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SelfcalError(f"{where} {text!r} is not a number") from None


def numbers(options: list[str] | None) -> dict[str, float]:
    """["eta=1"] -> {"eta": 1.0}."""
    found = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals:
            raise SelfcalError(f"--option {option!r} is not of the form key=value")
        found[key] = number(value, f"--option {key}")
    return found
