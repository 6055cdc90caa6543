"""Words of others, one escape for each medium: names of classes, folders, files and methods show as they are and do
nothing.

terminal    control characters, which move the cursor, become visible
html        the same, and no tag, attribute or entity begins
latex       the same, and no command, group or formula begins
markdown    the same on one line, and no emphasis, code, link, tag, entity or table begins
figure      the same, and matplotlib sees no formula and hides no name
table       as they are, for programs to read (CSV), and no cell or row begins

What a file or folder may be called is decided where samples are written (diffusion/sample_files.py), and JSON is
written by its own library.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from selfcal.core.errors import SelfcalError

# Invisible, and able to turn the reading order around: a name could pretend to be another.
DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff")
MARKS = re.compile(r"([!-/:-@\[-`{-~])")  # every ASCII mark; Markdown lets each of them be escaped
HARMLESS = re.compile(r"(?!.*[Ww]{3})[A-Za-z0-9]+(?:(?:[ ,=._-]| ?%?: )[A-Za-z0-9]+)*(?: ?%)?")
"""What none of Markdown's marks begins in: "cg-sc-all terms.sc_weight=1" and "2 %: 30 labels" stay readable."""
TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",  # German documents would read it with the letter after it
    "`": r"{\char96}",
    **{c: f"{{{c}}}" for c in "[]*"},  # at the beginning of a row they would belong to the one before
    **{c: f"\\{c}" for c in "%_&#${}"},
}


def terminal(text: str) -> str:
    """The same characters, those that a terminal would obey as \\x1b; lines stay lines."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(c if c == "\n" or not _acts(c) else _shown(c) for c in text)


def html(text: object) -> Markup:
    """For a page: a text that is markup already stays so."""
    return text if isinstance(text, Markup) else escape(terminal(str(text)))


def latex(text: str) -> str:
    """For the running text of a document, on one line."""
    return "".join(TEX.get(c, c) for c in _one_line(text))


def markdown(text: str) -> str:
    """For running text or the cell of a table."""
    line = _one_line(text)
    return line if HARMLESS.fullmatch(line) else MARKS.sub(r"\\\1", line)


def markdown_code(text: str) -> str:
    """As code, in which nothing acts: between more backticks than stand in it."""
    line = _one_line(text).replace("|", "¦")  # a table would end its cell within code, too
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    edge = " " if line[:1] in ("`", " ") or line[-1:] in ("`", " ") or not line else ""
    return f"{fence}{edge}{line}{edge}{fence}"


def figure(text: str) -> str:
    """For matplotlib: two $ would begin a formula, and a legend leaves out what begins with _."""
    shown = _one_line(text).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{shown}" if shown.startswith("_") else shown


def _one_line(text: str) -> str:
    return terminal(re.sub(r"\s+", " ", text))


def _acts(c: str) -> bool:
    """Control characters and halves of characters, which no terminal can print."""
    return unicodedata.category(c) in ("Cc", "Cs") or c in DIRECTIONS


def _shown(c: str) -> str:
    """\\x1b; of a file name's byte that is no UTF-8, that byte."""
    byte = ord(c) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else c.encode("unicode_escape", "backslashreplace").decode("ascii")


# --- terminals that do not know a character ---------------------------------------------------------

IN_WORDS = str.maketrans(
    {
        "λ": "lambda",
        "σ": "sigma",
        "ε": "eps",
        "∇": "grad",
        "ₓ": "_x",
        "∅": "none",
        "Σ": "sum",
        "∈": "in",
        "·": "*",
        "×": "x",
        "±": "+-",
        "−": "-",
        "–": "-",
        "—": "-",
        "→": "->",
        "…": "...",
        "²": "^2",
        "½": "1/2",
        "↑": "up",
        "↓": "down",
        "●": "*",
        "○": "o",
        "◐": ".",
        "✗": "x",
        "’": "'",
        "“": '"',
        "”": '"',
        "‖": "||",
        "≥": ">=",
        "≤": "<=",
        "ₛ": "_s",
        "é": "e",
        "━": "-",
        "╸": "-",
        "╺": "-",
        "─": "-",
        "│": "|",
    }
)


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end].translate(IN_WORDS)
    return "".join(c if c.isascii() else _shown(c) if _acts(c) else "?" for c in missing), error.end


PLAIN_LETTERS = "selfcal.plain-letters"
"""What streams do with characters that they have no code for: λ becomes lambda, and a stranger's letter a question
mark."""
codecs.register_error(PLAIN_LETTERS, _in_plain_letters)


def table(rows: Iterable[Sequence[object]]) -> str:
    """A CSV whose lines end in \\n. Every cell is read back as it is: also one with a \\r, which Python's writer
    leaves bare unless lines end in it, and every reader takes for the end of a row."""
    lines = []
    for row in rows:
        if any("\0" in str(cell) for cell in row):
            raise SelfcalError(
                f"a name holds a zero byte, which no table can hold: {terminal(' '.join(map(str, row)))}"
            )
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\r\n").writerow(row)
        lines.append(stream.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)
