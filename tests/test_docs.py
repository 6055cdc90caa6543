"""Every block of code in the pages is run, or says why not; links lead somewhere; commands that are shown exist."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from cyclopts.exceptions import MissingArgumentError

from markdown_pages import PAGES, ROOT, SITE, blocks, prose
from selfcal import cli
from selfcal.cli import commands
from selfcal.data.sources import load_data
from selfcal.diffusion.pictures import pixels
from selfcal.diffusion.sample_files import as_image

sys.path.insert(0, str(SITE))
from links import ADDRESS, dead_links

ELSEWHERE = {"README.md": "test_readme.py", "CONTRIBUTING.md": "test_contributing.py"}  # whose blocks other tests run
RUN = {
    name: page
    for name, page in PAGES.items()
    if name not in ELSEWHERE and any(b.language in ("python", "sh") and not b.why_not for b in blocks(page))
}
SMALL = {  # the same commands in seconds: options that are set, and those that are left out
    "train": ({"--steps": "10"}, ["--minutes"]),
    "adopt": ({"--steps": "10"}, []),
    "sample": ({"--steps": "3"}, []),
    "evaluate": ({"--count": "60", "--scales": "1,2", "--steps": "3"}, []),
    "demo": ({"--steps": "5", "--count": "60"}, []),
    "doctor": ({"--minutes": "0.2"}, []),
    "toy": ({"--steps": "5", "--seeds": "1", "--methods": "cg,cg-sc-all", "--jobs": "1"}, []),
    "compare": ({"--steps": "3", "--seeds": "1", "--labels": "0.02", "--count": "60", "--scales": "paper"}, []),
}
MAKE = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)


def small(words):
    wanted, unwanted = SMALL.get(words[0], ({}, []))
    kept, rest = [], iter(words)
    for word in rest:
        if word in wanted or word in unwanted:
            next(rest)
        else:
            kept.append(word)
    return kept + [part for option in wanted.items() for part in option]


def prepare(folder: Path, text: str):
    """What a page takes for granted: photos of two classes, and a pipeline of diffusers that makes such."""
    digits = load_data("digits")
    for place, image in enumerate(pixels(digits.x[:90].numpy()) if "photos/" in text else ()):
        kind = folder / "photos" / ("defect" if digits.y[place] < 5 else "good" if place % 3 else "unlabeled")
        kind.mkdir(parents=True, exist_ok=True)
        as_image(image).save(kind / f"{place}.png")
    if "ddpm-photos/" in text:
        from tiny_pipelines import save_trained

        save_trained(folder / "ddpm-photos")


def run(block, folder):
    if block.language == "python":
        exec(compile(block.text, "a page", "exec"), {"__name__": "a_page"})
        return
    for program, *words in block.commands:
        if program == "selfcal":
            with pytest.raises(SystemExit) as stop:
                cli.main(small(words))
            assert not stop.value.code, words
        elif program == "make":
            assert words[0] in MAKE
        else:
            assert (program, words) == ("source", [".venv/bin/activate"])


def test_every_block_is_run_or_says_why_not():
    told = {"python", "sh", "text"}
    silent = [
        f"{name}: ```{block.language}\n{block.text[:200]}"
        for name, page in PAGES.items()
        for block in blocks(page)
        if not block.why_not
        and not block.language.startswith("{")
        and block.language not in told | ({"diff"} if name == "CONTRIBUTING.md" else set())
    ]
    assert not silent, "\n".join(["write <!-- not run: why --> above these blocks, or make them sh or python", *silent])
    assert len(RUN) >= 6


@pytest.mark.parametrize("name", RUN)
def test_a_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    """In small form: fewer steps and samples, everything else as printed."""
    pytest.importorskip("diffusers")
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, RUN[name].read_text("utf-8"))
    for block in blocks(RUN[name]):
        if block.language in ("python", "sh") and not block.why_not:
            torch.manual_seed(0)
            run(block, tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_shown_exists_and_parses(name):
    whole = [words for block in blocks(PAGES[name]) if block.language in ("", "sh") for words in block.commands]
    parts = [shlex.split(line) for line in re.findall(r"`(selfcal [a-z]+ [^`]+)`", prose(PAGES[name]))]
    for program, *words in whole + parts:
        if program == "selfcal" and "…" not in words and "COMMAND" not in words:
            try:
                commands.app.parse_args(words, exit_on_error=False, print_error=False)
            except MissingArgumentError:
                assert [program, *words] in parts, "a sentence may show a part of a command, a block may not"
        elif program == "make":
            assert words[0] in MAKE


def slug(heading: str) -> str:
    """As code hosts and the site name the place of a heading."""
    plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name):
    """Within the project to a file and a heading of it; elsewhere to what is at least an address."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[name])):
        if re.match(r"[a-z]+:", link):
            assert ADDRESS.fullmatch(link), link
            continue
        target, _, place = link.partition("#")
        file = (PAGES[name].parent / target).resolve() if target else PAGES[name]
        assert file.exists(), link
        if place:
            headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), flags=re.MULTILINE)
            assert place in {slug(heading) for heading in headings}, link


def test_dead_links_of_a_built_site_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html#there">b</a><a href="#here">a</a><a href="https://example.org/x?y=1#z">o</a>'
    )
    (tmp_path / "b.html").write_text('<p id="there"><img src="c.png"><a href="a.html">a</a>')
    assert list(dead_links(tmp_path)) == ["b.html: c.png"]
    (tmp_path / "c.png").touch()
    assert list(dead_links(tmp_path)) == []
    (tmp_path / "b.html").write_text(
        '<a href="a.html#gone">1</a><a href="https://exa mple.org">2</a><a href="z/">3</a>'
    )
    assert [line.split(": ")[1] for line in dead_links(tmp_path)] == [
        "b.html#there", "a.html#gone", "https://exa mple.org", "z/",
    ]  # fmt: skip
