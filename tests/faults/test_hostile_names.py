"""Names of strangers through every medium: what was meant is shown, and nothing of it acts.

Each medium is judged by somebody else's reader: an HTML parser, a Markdown parser, a TeX tokeniser, a terminal's
alphabet, csv and the file system.
"""

from __future__ import annotations

import csv
import html.parser
import io
import re
import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.table import Table

import small
import written
from selfcal.core import escapes
from selfcal.core.console import PlainConsole, encode_anything
from selfcal.core.errors import SelfcalError
from selfcal.data.label_files import NO_LABEL, as_table, read_rows
from selfcal.diffusion.sample_files import folder_names
from selfcal.diffusion.samples import Samples
from selfcal.experiments.compare import tables
from selfcal.experiments.compare.latex import latex
from selfcal.experiments.compare.page import write_page
from selfcal.experiments.compare.summary import Summary
from selfcal.interop import card
from selfcal.report.page import render

pytestmark = pytest.mark.timeout(3600 if small.LONG else 300)
MANY = settings(max_examples=600 if small.LONG else 40)

KNOWN = [
    "<script>alert(1)</script>",
    "\" onload='x' ",
    "a&lt;b&amp;",
    "</td></tr></table>",
    "{{ 7*7 }}{% raw %}",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "a\rb\x08c",
    "line\nbreak",
    "[/bold]",
    "[final]",
    "[link=http://x]y[/link]",
    ":smile:",
    "\\input{/etc/passwd}",
    "\\write18{ls}",
    "100% & more_of #1 $x^2$ ~{}",
    "%comment",
    "*x",
    "[2pt]",
    "$\\frac{1}",
    "_hidden",
    "| a | b |",
    "**bold** `code` ![i](u) [l](javascript:x)",
    "<!-- c -->",
    "# head",
    "- item",
    "1. one",
    "www.example.com http://example.com a@b.example",
    "``` fence",
    "a`b``c",
    "../../up",
    "/abs",
    "..",
    ".hidden",
    "CON",
    "nul.txt",
    "grid.png",
    "manifest.json",
    "a/b",
    "a\\b",
    "nul\0byte",
    "",
    " ",
    "x" * 300,
    "é" * 150,
    "caf\udce9",
    "\u202eabc",
    "\u2066x\u2069",
    "a,b",
    '"quoted"',
    "=1+1",
    "?",
    "名前",
]
ALPHABET = st.one_of(
    st.sampled_from("<>&\"'`*_{}[]()#+-.!|\\/~^:$%@=?;, \n\r\t\x00\x07\x08\x1b\x7f\x9b\u202e\u2028\ufeff\udce9é名"),
    st.characters(),
)
JOINED = st.tuples(st.sampled_from(KNOWN), st.text(max_size=8)).map("".join)
NAMES = st.one_of(st.sampled_from(KNOWN), st.text(ALPHABET, max_size=30), JOINED)


def shown(name):
    """What a reader should see of it: control characters spelled out, all on one line."""
    return re.sub(r"\s+", " ", escapes.terminal(re.sub(r"\s+", " ", name))).strip()


def judged(tally, medium, fine):
    counts, raw = tally
    counts[medium] += 1
    raw[medium] += not fine
    assert fine, medium


# --- the terminal -----------------------------------------------------------------------------------


def acts_on_a_terminal(text):
    bad = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cs")]
    return bad or escapes.DIRECTIONS & set(text)


LEFT_OUT = set("\n\r\t\x07\x08\x0b\x0c")  # by rich itself; lines and tabs it lays out


@MANY
@given(name=NAMES)
def test_the_terminal(names_tally, name):
    for encoding in ("utf-8", "ascii", "latin-1"):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
        encode_anything(stream)
        console = PlainConsole(file=stream, width=2000, force_terminal=False)
        table = Table("head", title=name)
        table.add_row(name)
        for thing in (name, table, f"a sentence with {name!s}"):
            console.print(thing, soft_wrap=True)
        stream.flush()
        said = raw.getvalue().decode(encoding)
        fine = not acts_on_a_terminal(said)
        if encoding == "utf-8" and name.strip() and not LEFT_OUT & set(name):
            fine = fine and escapes.terminal(name).rstrip() in said  # markup is shown, not obeyed
        judged(names_tally, f"terminal, {encoding}", fine)


# --- HTML -------------------------------------------------------------------------------------------


class Skeleton(html.parser.HTMLParser):
    """Tags with the names of their attributes, and all text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(sorted(key for key, _ in attrs))))

    def handle_endtag(self, tag):
        self.tags.append(f"/{tag}")

    def handle_comment(self, data):
        self.tags.append("comment")

    def handle_data(self, data):
        self.text.append(data)


def skeleton(page):
    parser = Skeleton()
    parser.feed(page)
    parser.close()
    return parser


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("templates")
    (folder / "name.html").write_text(
        '{% extends "page.html" %}{% block title %}{{ name }}{% endblock %}'
        "{% block body %}<p title=\"{{ name }}\">{{ name }}</p><img alt='{{ name }}'>{{ drawn }}{% endblock %}"
    )
    return folder


def pages_of(name, templates):
    """A page of our own, the tables of a notebook, and the doctor's words about a label."""
    from selfcal.training.history import History

    yield render(templates / "name.html", name=name, drawn=escapes.html(name))
    yield History([{"network": name, "step": 1, f"c{name}": name}])._repr_html_()


@MANY
@given(name=NAMES)
def test_html(names_tally, templates, name):
    plain = [skeleton(page).tags for page in pages_of("name", templates)]
    for page, tags in zip(pages_of(name, templates), plain, strict=True):
        found = skeleton(page)
        fine = found.tags == tags and not acts_on_a_terminal(page) and escapes.terminal(name) in "".join(found.text)
        judged(names_tally, "HTML", fine)


def test_the_page_of_a_comparison(tmp_path):
    """All that a stranger can name in it: a table of labels, a command, an error."""
    name = "<script>alert(1)</script>\x1b[31m"
    out = written.comparison(tmp_path / "c", labels=f"{name}.csv", command=f"selfcal compare {name} `x`")
    failed = {"method": "cg-sc-all", "labels": f"{name}.csv", "seed": 0, "state": "failed", "error": name}
    written.put(next(p for p in out.rglob("seed-0.json") if "cg-sc-all" in str(p)), failed)
    page = write_page(out).read_text("utf-8")
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m") >= 3
    for file in ("table.md", "claims.md", "table.tex", "report.html"):
        assert not acts_on_a_terminal((out / file).read_text("utf-8")), file
    assert r"\<script\>" in (out / "table.md").read_text("utf-8")


@settings(max_examples=520 if small.LONG else 8)
@given(name=NAMES)
def test_figures(names_tally, name):
    """As the label of a curve: the legend shows it, and it is neither a formula nor a tag."""
    from selfcal.app.asking import curve

    classes = (name, "other")
    drawn = curve([0.1, 1.0], torch.tensor([[0.3, 0.7], [0.6, 0.4]]), classes)
    found = skeleton(drawn)
    fine = not acts_on_a_terminal(drawn) and "script" not in {t[0] for t in found.tags if isinstance(t, tuple)}
    words, legend = shown(name[:24]), "".join(found.text)  # long names are cut
    fine = fine and "".join(words.split()) in "".join(legend.split())
    judged(names_tally, "figures (SVG)", fine)


# --- LaTeX ------------------------------------------------------------------------------------------

COMMANDS = "textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar"
ESCAPED = rf"\\(?:{COMMANDS})\{{\}}|\{{\\char(?:34|96)\}}|\{{[\[\]*]\}}|\\[%_&#${{}}]"
TOKENS = re.compile(ESCAPED + r"|[^\\%_&#${}~^\"`\[\]*\n]")


def is_plain_tex(text):
    """Nothing but letters and the escapes that we know."""
    return "".join(TOKENS.findall(text)) == text


@MANY
@given(name=NAMES)
def test_latex(names_tally, name):
    escaped = escapes.latex(name)
    judged(names_tally, "LaTeX", is_plain_tex(escaped) and not acts_on_a_terminal(escaped))


def test_the_latex_table_escapes_what_stands_in_it():
    """Of a table of labels that somebody called so; methods cannot be called anything."""
    labels = r"a_b\input{x}%.csv"
    text = latex(Summary([written.outcome("cg", labels)]))
    assert r"a\_b\textbackslash{}input\{x\}\%.csv" in text
    assert not re.search(r"(?<!\\)%\.csv", text)


# --- Markdown ---------------------------------------------------------------------------------------

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
INLINE = {"text", "softbreak", "text_special"}


def says_only(markdown, words):
    """A reader of CommonMark with tables sees one paragraph of text, these words, and nothing else."""
    tokens = MARKDOWN.parse(f"before {markdown} after")
    kinds = [t.type for t in tokens]
    children = [c for t in tokens if t.type == "inline" for c in t.children]
    text = "".join(c.content for c in children)
    plain = kinds == ["paragraph_open", "inline", "paragraph_close"] and {c.type for c in children} <= INLINE
    plain = plain and not re.search(r"(?i)www\.|https?:|[a-z]@[a-z]|(?<!\\)[@:]\w", markdown)  # GitHub would link these
    return plain and "".join(text.split()) == "".join(f"before {words} after".split())


@MANY
@given(name=NAMES)
def test_markdown(names_tally, name):
    escaped = escapes.markdown(name)
    fine = says_only(escaped, shown(name)) and not acts_on_a_terminal(escaped)
    judged(names_tally, "Markdown", fine)
    judged(names_tally, "model card", says_only(card.in_words((name, "b")), f"{shown(name)}, b"))
    code = escapes.markdown_code(name)
    tokens = MARKDOWN.parse(f"before {code} after")
    kinds = [c.type for t in tokens if t.type == "inline" for c in t.children]
    judged(names_tally, "Markdown, as code", kinds == ["text", "code_inline", "text"])


@MANY
@given(name=NAMES)
def test_a_cell_of_a_markdown_table(names_tally, name):
    """As the labels of a comparison: the table keeps its columns."""
    labels = f"l{name}.csv"
    text = tables.all_in_markdown(Summary([written.outcome("cg", labels)]), [])
    tokens = MARKDOWN.parse(text)
    cells = [t for t in tokens if t.type in ("td_open", "th_open")]
    inline = {c.type for t in tokens if t.type == "inline" for c in t.children}
    bold = {"strong_open", "strong_close", "html_inline"}  # <u>best</u>
    rows = [t for t in tokens if t.type == "tr_open"]
    fine = len(rows) == 2 and len(cells) % 2 == 0 and inline <= INLINE | bold
    judged(names_tally, "Markdown, tables", fine and [t.type for t in tokens].count("heading_open") == 1)


# --- files and tables -------------------------------------------------------------------------------


@MANY
@given(names=st.lists(NAMES, min_size=2, max_size=4, unique=True))
def test_file_names(names_tally, tmp_path_factory, names):
    folders = folder_names(names)
    home = tmp_path_factory.mktemp("names")
    fine = len({f.casefold() for f in folders}) == len(names)
    for folder in folders:
        fine = fine and folder not in ("", ".", "..") and not {"/", "\\", "\0"} & set(folder) and folder.isprintable()
        fine = fine and (home / folder).resolve().parent == home.resolve()
        (home / folder).mkdir()
        judged(names_tally, "file names", fine)


def test_samples_of_hostile_classes_keep_to_their_folder(tmp_path):
    """All known names at once: every class has a folder of its own, and the manifest says which."""
    names = tuple(n for n in dict.fromkeys(KNOWN) if "\udce9" not in n)
    samples = Samples(torch.zeros(len(names), 1, 2, 2), torch.arange(len(names)), names, {})
    samples.save(tmp_path / "deep" / "out")
    made = [p for p in tmp_path.rglob("*.png") if p.name != "grid.png"]
    assert len(made) == len(names)
    assert {p.parent.parent for p in made} == {tmp_path / "deep" / "out"}


@MANY
@given(names=st.lists(NAMES, min_size=1, max_size=4))
def test_csv(names_tally, tmp_path_factory, names):
    """What is written is read back, cell by cell, by another reader and by ours."""
    names = [n.encode("utf-8", "replace").decode() for n in names]
    rows = [(f"{i}.png", name) for i, name in enumerate(names)]
    if any("\0" in name for name in names):  # which no reader would take
        with pytest.raises(SelfcalError, match="zero byte"):
            as_table(rows)
        return
    text = as_table(rows)
    back = list(csv.reader(io.StringIO(text, newline="")))
    path = tmp_path_factory.getbasetemp() / "labels.csv"
    path.write_bytes(text.encode())
    ours = [(row.file, row.label) for row in read_rows(path, lambda entry: entry.endswith(".png"))]
    for i, name in enumerate(names):
        known = name.strip() if name.strip().lower() not in NO_LABEL else None  # such words mean that nobody knows
        judged(names_tally, "CSV", tuple(back[i + 1]) == rows[i] and ours[i][1] == known)


@MANY
@given(name=NAMES)
def test_pictures(names_tally, name):
    """As the caption of a grid: it keeps to its line above its own image, and all else stays as it is."""
    from selfcal.diffusion.pictures import GAP, LETTERS, captioned_grid

    def drawn(first):
        return np.array(captioned_grid(np.zeros((2, 1, 4, 4), np.float32), np.array([0, 1]), (first, "b")))

    found, plain = drawn(name), drawn("a")
    fine = found.shape == plain.shape
    if fine:
        same = (found == plain).all(-1)
        same[: LETTERS + 2 * GAP, : plain.shape[1] // 2] = True  # the line of its own
        fine = bool(same.all())
    judged(names_tally, "captions (PNG)", fine)
