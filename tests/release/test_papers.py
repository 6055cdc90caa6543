"""What a release brings beside code: changes, citation, checks and forms say what is true of this version."""

from __future__ import annotations

import re
import tomllib

import pytest

from markdown_pages import ROOT
from selfcal.core.version import __version__

yaml = pytest.importorskip("yaml")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
FORMS = {file.stem: yaml.safe_load(file.read_text("utf-8")) for file in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")}


def test_the_newest_change_is_this_version():
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## ([\d.]+)", changes, flags=re.MULTILINE)[0] == __version__


def test_the_paper_is_cited_first():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert str(citation["version"]) == __version__
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["license"]
    paper = citation["preferred-citation"]
    assert paper["title"].endswith("Self-calibrating Classifier Guidance")
    assert [a["family-names"] for a in paper["authors"]] == ["Huang", "Chen", "Lin"]
    assert paper["url"] == "https://arxiv.org/abs/2307.04081"


def test_every_step_of_the_checks_is_a_target_of_the_makefile():
    """Fetching the code and Python aside; lint, tests on every Python that is said to do, docs and the wheel."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text("utf-8"))["jobs"]
    assert set(jobs) == {"lint", "test", "docs", "wheel"}
    for job in jobs.values():
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert len(commands) == 1
        program, target = commands[0].split()
        assert program == "make"
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target
        assert all(step["uses"].startswith("actions/") for step in job["steps"] if "uses" in step)
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]


@pytest.mark.parametrize("name", ["bug", "quality"])
def test_forms_ask_for_the_doctors_output(name):
    fields = {part["id"]: part for part in FORMS[name]["body"] if "id" in part}
    assert "selfcal doctor RUN" in fields["doctor"]["attributes"]["description"]
    assert fields["doctor"]["validations"]["required"]
    assert len(fields) == len([part for part in FORMS[name]["body"] if part["type"] != "markdown"]), "ids are unique"


def test_forms_are_whole():
    assert set(FORMS) == {"bug", "quality", "idea", "config"}
    for name, form in FORMS.items():
        if name != "config":
            assert {"name", "description", "body"} <= set(form)
            assert {part["type"] for part in form["body"]} <= {"markdown", "textarea", "input"}
