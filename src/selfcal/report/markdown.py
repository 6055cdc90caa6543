"""Words of others in Markdown: names of classes, folders and files are shown as they are and mean nothing."""

from __future__ import annotations

import re

MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|&~^:@$/])")  # emphasis, code, links, addresses, tags, entities, tables


def escaped(text: str) -> str:
    """The same words on one line, with nothing in them that Markdown or HTML would act on."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return MARKS.sub(r"\\\1", words)
