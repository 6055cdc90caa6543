"""The pages that people read, and the blocks of code in them.

A block says what it is: `python` and `sh` are run by the tests; `{…}` is Sphinx's, which `make docs` runs; `text` is no
code; anything else, or code that is too dear to run, has `<!-- not run: why -->` in the line above.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "site"
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("docs/**/*.md")])
    if SITE not in page.parents
}
FENCE = re.compile(r"(?:^<!-- not run: (.+?) -->\n)?^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    why_not: str  # why it is not run, if it is not
    language: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Its lines as a shell would take them apart: continued lines joined, comments left out."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(page: Path) -> list[Block]:
    return [Block(*(part or "" for part in found)) for found in FENCE.findall(page.read_text("utf-8"))]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return FENCE.sub("", page.read_text("utf-8"))
