"""The wheel alone, in an empty environment outside the repository: all that it needs is inside, and commands run.

`make test-dist` builds dist/ and runs this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from selfcal.core.version import __version__

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(1800)


def archive(pattern: str) -> Path:
    """The one of dist/."""
    (found,) = (ROOT / os.environ["SELFCAL_DIST"]).glob(pattern)
    return found


class Installed:
    """An environment that holds the wheel and what it asks for, and nothing else; commands run in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.cwd = folder / "env" / "bin", folder / "elsewhere"
        self.cwd.mkdir()
        venv.create(folder / "env", with_pip=True)
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
        self.run("python", *pip, archive("*.whl"))

    def run(self, program: str, *words: object, code: int = 0) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        kept |= {"HOME": str(self.cwd), "XDG_CACHE_HOME": str(self.cwd / "cache"), "COLUMNS": "200"}
        command = [str(self.bin / program), *map(str, words)]
        done = subprocess.run(command, cwd=self.cwd, env=kept, capture_output=True, text=True)
        assert done.returncode == code, f"{command}: {done.stdout[-2000:]} {done.stderr[-4000:]}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("alone"))


def test_the_wheel_holds_every_file_of_the_package():
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "src/selfcal"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    with zipfile.ZipFile(archive("*.whl")) as wheel:
        names = set(wheel.namelist())
    wanted = {name.removeprefix("src/") for name in tracked if name}
    assert {"selfcal/evaluation/digits_judge.safetensors", "selfcal/report/page.html", "selfcal/py.typed"} <= wanted
    assert wanted <= names
    assert not {name for name in names if name.startswith(("tests", "docs"))}


def test_the_source_archive_can_be_built_and_tested_from():
    with tarfile.open(archive("*.tar.gz")) as source:
        names = {name.split("/", 1)[1] for name in source.getnames() if "/" in name}
    assert {
        "Makefile", "pyproject.toml", "constraints.txt", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE",
        "CONTRIBUTING.md", "docs/site/conf.py", "examples/folder.py", "tests/release/test_wheel.py",
    } <= names  # fmt: skip


def test_it_is_the_installed_one_that_runs(installed):
    where = installed.run("python", "-c", "import selfcal; print(selfcal.__file__, selfcal.__version__)")
    assert where.split() == [
        str(next(installed.bin.parent.glob("lib/*/site-packages/selfcal/__init__.py"))),
        __version__,
    ]
    assert "diffusers" not in installed.run("python", "-m", "pip", "list"), "extras are not brought along"


def test_every_help(installed):
    """Of all commands that the installed one knows."""
    listing = "from selfcal.cli.commands import app; print(*(name for name in app if not name.startswith('-')))"
    names = installed.run("python", "-c", listing).split()
    assert {"demo", "toy", "train", "sample", "evaluate", "compare", "export"} <= set(names)
    assert "Usage" in installed.run("selfcal", "--help")
    for name in names:
        said = installed.run("selfcal", name, "--help")
        assert f"selfcal {name}" in said
        assert "Example" in said or "xample:" in said, name


def test_what_is_listed_comes_from_the_wheel(installed):
    presets = {file.stem for file in (ROOT / "src/selfcal/core/presets").glob("*.toml")}
    said = installed.run("selfcal", "presets")
    assert all(name in said for name in presets)
    assert "terms.sc_weight" in installed.run("selfcal", "settings", "--preset", "photos64")
    assert "cg-sc-all" in installed.run("selfcal", "methods")


def test_the_demo(installed):
    installed.run("selfcal", "demo", "--steps", 50, "--out", "demo")
    assert "self-calibrat" in (installed.cwd / "demo/report.html").read_text("utf-8")
    results = json.loads((installed.cwd / "demo/results.json").read_text("utf-8"))
    assert {r["method"] for r in results} == {"cg", "cg-sc-all"}
    assert all(r["features"] == "digits-cnn" for r in results), "the judge is in the wheel"
    run = next((installed.cwd / "demo").rglob("config.json")).parent
    assert "pip install 'selfcal[diffusers]'" in installed.run("selfcal", "export", run, "--out", "pipe", code=2)


def test_the_toy_in_small_form(installed):
    installed.run("selfcal", "toy", "--seeds", 1, "--steps", 50, "--jem-steps", 5, "--jobs", 1, "--out", "toy")
    for name in ("report.html", "table.md", "fields.png", "paths.png"):
        assert (installed.cwd / "toy" / name).stat().st_size > 100, name
    assert sys.prefix not in (installed.cwd / "toy/report.html").read_text("utf-8")
