"""Docstrings as selfcal writes them, for Sphinx: `names` are code, so is what is indented, and lines that begin with a
parameter's name are a list of parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
NAMES = re.compile(r"^((?:\w+, )*\w+(?: (?:or|and) \w+)?): ")


def inline(text: str) -> str:
    """`x` becomes ``x``; asterisks and bars are what they are."""
    parts = CODE.split(text)
    return "".join(f"``{p}``" if i % 2 else p.replace("*", "\\*").replace("|", "\\|") for i, p in enumerate(parts))


def as_rst(lines: list[str], parameters: set[str]) -> Iterator[str]:
    state = ""  # what the last line that was not empty belongs to: "text", "code" or "list"
    before = ""
    for line in lines:
        if not line.strip():
            yield ""
        elif line.startswith("    ") and state != "list":
            if state != "code":
                yield from ("", ".. code-block:: python", "")
            state = "code"
            yield line
        elif (named := NAMES.match(line)) and {*re.findall(r"\w+", named[1])} - {"or", "and"} <= parameters:
            yield from ("", f"- ``{named[1]}``: {inline(line[named.end() :])}")
            state = "list"
        else:
            if state == "code":
                yield ""
            state = "list" if state == "list" and before else "text"
            yield ("  " if state == "list" else "") + inline(line)
        before = line.strip()


def process(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    try:
        parameters = set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        parameters = set()
    lines[:] = [*as_rst(lines, parameters), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
