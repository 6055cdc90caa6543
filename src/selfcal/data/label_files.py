"""Tables of labels as people write them: CSV or TSV, with a header or without, from a spreadsheet or a script."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from selfcal.core import escapes
from selfcal.core.errors import SelfcalError, listed
from selfcal.data.limits import LARGEST_TEXT

ENDINGS = (".csv", ".tsv", ".txt")
FILE_HEADS = (
    "file",
    "filename",
    "file_name",
    "image",
    "image_name",
    "image_path",
    "path",
    "filepath",
    "file_path",
    "id",
)
LABEL_HEADS = ("label", "labels", "class", "class_name", "category", "target")
NO_LABEL = ("", "?", "-1", "unlabeled", "unlabelled")  # in any case
SEPARATORS = ",;\t|"
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
COLUMNS = "the columns file and label"


@dataclass(frozen=True)
class Row:
    line: int
    file: str
    label: str | None  # None where the table says that nobody knows


def is_label_file(labels: str | float | Path | None) -> bool:
    return str(labels).strip().lower().endswith(ENDINGS)


def read_rows(path: Path, is_example: Callable[[str], bool]) -> list[Row]:
    """Every row that names a file. Without a header, the files' column is the one whose first entry is an example."""
    if path.exists() and not path.is_file():
        raise SelfcalError(f"{path} is not a file; a CSV with {COLUMNS} is needed")
    try:
        lines = _cells(_text(path))
    except FileNotFoundError:
        raise SelfcalError(f"the label file {path} does not exist") from None
    except (OSError, ValueError, csv.Error) as error:
        raise SelfcalError(f"{path} cannot be read as a CSV file: {error}") from None
    if not lines:
        raise SelfcalError(f"{path} has no rows")
    first = [cell.strip() for cell in lines[0][1]]
    columns = _from_header(first)
    if columns is not None and not is_example(first[columns[0]]):  # a class may be called "target"
        lines = lines[1:]
    else:
        columns = _from_entries(first, is_example, path)
    rows, lacking = [], []
    for line, cells in lines:
        file, label = ((cells[column] if column < len(cells) else "").strip() for column in columns)
        if file:
            rows.append(Row(line, file, None if label.lower() in NO_LABEL else label))
        elif label:
            lacking.append(f"line {line}")
    if lacking:
        raise SelfcalError(f"{path}: {listed(lacking)} lack{'s' if len(lacking) == 1 else ''} a file")
    if not rows:
        raise SelfcalError(f"{path} has no rows")
    return rows


def _text(path: Path) -> str:
    """In UTF-8 or UTF-16, told by the first bytes, or by the zeros that plain letters have in UTF-16."""
    if path.stat().st_size > LARGEST_TEXT:
        raise SelfcalError(f"{path} holds more than {LARGEST_TEXT >> 20} MiB; a label file is a line per image")
    data = path.read_bytes()
    code = next((code for mark, code in MARKS.items() if data.startswith(mark)), None)
    if code is None and b"\0" in data[:4]:
        code = "utf-16-be" if data[:1] == b"\0" else "utf-16-le"
    try:
        text = data.decode(code or "utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is neither UTF-8 nor UTF-16; save it as UTF-8") from None
    if "\0" in text:
        raise ValueError("it holds zero bytes")
    return text


def _cells(text: str) -> list[tuple[int, list[str]]]:
    """The lines that hold something, with their numbers, cut at the separator that cuts them best."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.lower().startswith("sep=") and len(first) == 5:  # Excel's own mark
        text, given = text.replace(first, "", 1), first[4]
    else:
        given = max(SEPARATORS, key=lambda separator: _quality(text, separator))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=given, skipinitialspace=True)
    return [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]


def _quality(text: str, separator: str) -> tuple[bool, int]:
    """Whether the first line becomes a header, and in how many of the first lines there are at least two cells."""
    reader = csv.reader(io.StringIO(text[:100_000], newline=""), delimiter=separator, skipinitialspace=True)
    try:
        lines = [cells for _, cells in zip(range(50), reader, strict=False) if any(cell.strip() for cell in cells)]
    except csv.Error:
        return False, 0
    return bool(lines) and _from_header(lines[0]) is not None, sum(len(cells) >= 2 for cells in lines)


def _from_header(cells: list[str]) -> tuple[int, int] | None:
    """The columns of files and labels, if this line names them; of two columns one name is enough."""
    heads = [cell.strip().lower() for cell in cells]
    file = next((heads.index(name) for name in FILE_HEADS if name in heads), None)
    label = next((heads.index(name) for name in LABEL_HEADS if name in heads), None)
    if len(heads) == 2 and (file is None) != (label is None):
        file, label = (1 - label, label) if file is None and label is not None else (file, 1 - (file or 0))
    return None if file is None or label is None else (file, label)


def _from_entries(cells: list[str], is_example: Callable[[str], bool], path: Path) -> tuple[int, int]:
    for file, label in ((0, 1), (1, 0)):
        if len(cells) >= 2 and is_example(cells[file]):
            return file, label
    raise SelfcalError(
        f"{path} should name {COLUMNS} in its first line, or begin at once with the name of an image and its label; "
        f"its first line is {', '.join(repr(cell) for cell in cells[:6])}"
    )


def as_table(rows: Iterable[tuple[str, str]]) -> str:
    """(file, label) as a CSV that `read_rows` reads back; "" where nobody knows the label yet."""
    return escapes.table([("file", "label"), *rows])
