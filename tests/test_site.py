"""The site is built as `make docs` builds it: no warning, no dead link, and tables that say what the code says."""

from __future__ import annotations

import html
import re
import subprocess
import sys

import pytest

from markdown_pages import ROOT, SITE
from selfcal.cli.commands import app
from selfcal.core.settings import keys, presets
from selfcal.methods.table import METHODS

pytest.importorskip("furo")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    words = ["--quiet", "--fail-on-warning", "-d", tmp_path_factory.mktemp("trees"), "-c", SITE, ROOT / "docs", out]
    done = subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def text_of(page) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


def test_no_link_of_it_is_dead(site):
    done = subprocess.run([sys.executable, SITE / "links.py", site], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" 0 dead links\n")


def test_it_fetches_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"', page.read_text("utf-8"))


def test_tables_are_the_codes(site):
    settings = text_of(site / "settings.html")
    shared = re.compile(r"^(classifier|conditional)\.")  # told once, with score's
    assert [key for key in keys() if not shared.match(key) and key not in settings] == []
    assert [name for name in METHODS if name not in text_of(site / "methods.html")] == []
    assert [name for name in presets() if name not in text_of(site / "presets.html")] == []
    commands = text_of(site / "commands.html")
    assert [name for name in app if not name.startswith("-") and f"selfcal {name}" not in commands] == []


def test_the_api_shows_formulas_and_parameters(site):
    page = (site / "api" / "run.html").read_text("utf-8")
    assert re.search(r"<li><p><code[^>]*><span class=\"pre\">labels</span></code>: all that the data has", page)
    assert "∇ₓ log p(y | x, σ)" in text_of(site / "api" / "diffusion.html")
    assert "logsumexp_y f(x_σ, y, σ)" in text_of(site / "api" / "methods.html")
