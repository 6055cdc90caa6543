"""Where commands print. Nothing that is printed is obeyed: neither rich's markup nor control characters."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from selfcal.core.escapes import PLAIN_LETTERS, terminal


class PlainConsole(Console):
    """rich's console, on which [bold] is six characters; our own marks are made of `Text`."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **keywords)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=terminal(segment.text))


def encode_anything(*streams: TextIO) -> None:
    """On terminals that know few characters, the others are told in plain letters instead of ending the command."""
    for stream in streams or (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN_LETTERS)


def knows_all_letters(stream: TextIO) -> bool:
    """Whether JSON may be printed as it is written to files."""
    return (stream.encoding or "").lower().replace("-", "").replace("_", "") == "utf8"
