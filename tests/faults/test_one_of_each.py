"""One reader and one escape for each medium: whatever else reads a file or escapes a word is found here.

The other static tests (test_static.py) look for code that runs out of files, and for other writers.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import selfcal

SOURCE = Path(selfcal.__file__).parent

# What opens, decodes or unpacks a file, or escapes a word.
READS = {"np.load", "numpy.load", "np.memmap", "np.fromfile", "np.loadtxt", "np.genfromtxt", "json.load", "json.loads"}
READS |= {"csv.reader", "csv.DictReader", "tomllib.load", "tomllib.loads", "Image.open", "torch.load", "safe_open"}
READS |= {"load_file", "safetensors.load", "safetensors.load_file", "zipfile.ZipFile", "tarfile.open", "gzip.open"}
READING_METHODS = {"read_text", "read_bytes"}
ESCAPES = {"html.escape", "markupsafe.escape", "xml.sax.saxutils.escape", "rich.markup.escape"}
ESCAPES |= {"csv.writer", "csv.DictWriter"}
PRINTS = {"Console", "rich.print", "rich.get_console", "jinja2.Environment", "jinja2.Template"}

ALLOWED = {
    # the reader itself, and what it stands on
    "core/files.py": {"json.loads", "read_bytes", "zipfile.ZipFile"},  # writes the last
    "core/reading.py": {"zipfile.ZipFile", "safetensors.load", "read_bytes"},
    "core/bounds.py": {"read_text"},  # /proc/meminfo
    # our own files, which come with the package
    "core/settings.py": {"tomllib.loads", "read_text"},
    "interop/portable.py": {"read_text"},
    "interop/card.py": {"read_text", "jinja2.Environment"},  # Markdown: every name in it goes through `escaped`
    "app/page.py": {"read_text"},
    # formats of others, each with a reader of its own, distrustful too, and fuzzed in test_readers.py
    "data/images.py": {"Image.open"},
    "data/idx.py": {"gzip.open"},
    "data/cifar.py": {"tarfile.open", "read_bytes"},
    "data/label_files.py": {"csv.reader", "read_bytes"},
    "interop/tensors.py": {"torch.load"},
    "evaluation/inception.py": {"torch.load"},
    "evaluation/efficientnet.py": {"torch.load"},
    # hashed at each use
    "evaluation/cache.py": {"read_bytes"},
    "training/checkpoints.py": {"read_bytes", "json.loads"},  # manifests, to the byte
    "interop/pipeline.py": {"json.loads", "read_text"},  # stands alone, without the rest of selfcal
    # lines, of which only whole ones are taken
    "training/journal.py": {"json.loads", "read_text", "read_bytes"},
    "experiments/compare/board.py": {"json.loads"},
    # pictures that were drawn a moment ago
    "training/tracking.py": {"Image.open"},
    "experiments/toy/fields.py": {"Image.open"},
    "diffusion/sample_files.py": {"zipfile.ZipFile"},  # writes
    # the escapes and the console themselves
    "core/escapes.py": {"csv.writer", "markupsafe.escape"},
    "core/console.py": set(),
    "report/page.py": {"jinja2.Environment"},
    "cli/commands.py": set(),
}


def uses(text: str) -> set[str]:
    """Which of the above a file uses, under whatever name it imported it."""
    tree, names, found = ast.parse(text), dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names[alias.asname or alias.name] = whole
                found |= {whole} & ESCAPES
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        known = {name, names.get(name, name), ".".join(names.get(name, name).split(".")[-1:])}
        known.add(name.replace("PIL.Image", "Image"))
        found |= known & (READS | ESCAPES | PRINTS)
        if isinstance(node.func, ast.Attribute) and node.func.attr in READING_METHODS:
            found.add(node.func.attr)
    return found


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda f: f.relative_to(SOURCE).as_posix())
def test_no_file_reads_or_escapes_in_its_own_way(file):
    allowed = ALLOWED.get(file.relative_to(SOURCE).as_posix(), set())
    assert uses(file.read_text("utf-8")) <= allowed, "core/reading.py reads, core/escapes.py escapes"


def test_no_template_lets_words_of_others_through():
    """`safe` is for figures that matplotlib drew and numbers that we marked."""
    allowed = {
        "part",
        "cell",
        'figures["over-labels"]',
        'figures["over-scale"]',
        "picture.svg",
        "intra_fid",
        "accuracy",
    }
    allowed |= {"guides"}

    for template in SOURCE.rglob("*.html"):
        text = template.read_text("utf-8")
        assert set(re.findall(r"{{\s*([^{}|]+?)\s*\|\s*safe\s*}}", text)) <= allowed, template
        assert "autoescape" not in text


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np\nnp.load('f')",
        "import json\njson.loads(t)",
        "from safetensors.torch import load_file\nload_file('f')",
        "from pathlib import Path\nPath('f').read_text()",
        "import html\nhtml.escape(t)",
        "from markupsafe import escape\nescape(t)",
        "from rich.markup import escape as e\ne(t)",
        "from rich.console import Console\nConsole()",
        "import csv\ncsv.reader(f)",
        "import jinja2\njinja2.Environment()",
        "from PIL import Image\nImage.open(f)",
    ],
)
def test_that_this_test_can_fail(text):
    assert uses(text)
