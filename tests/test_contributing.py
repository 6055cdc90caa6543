"""CONTRIBUTING: every path and name in its map exists, and its worked example works when the files are so edited."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from oracle import perturbed, three_classes
from selfcal.methods.reading import Reading

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "selfcal"
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
MAP = TEXT[TEXT.index("| room |") : TEXT.index("Imports only point up")]
ROWS = re.findall(r"^\| `([\w./]+)` \| (.*?) \|$", MAP, flags=re.MULTILINE)
ADDED = TEXT[TEXT.index("| you add |") : TEXT.index("### A method of one's own")]


@pytest.mark.parametrize(("room", "words"), ROWS, ids=lambda value: value if "/" in value[:15] else "")
def test_every_file_of_the_map_is_in_its_room(room, words):
    assert (SOURCE / room).exists()
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", words):
        assert (SOURCE / room / name).exists(), f"{room}{name}"


def test_every_room_is_on_the_map():
    rooms = {p.name + ("/" if p.is_dir() else "") for p in SOURCE.iterdir() if p.name != "__pycache__"}
    assert rooms - {room for room, _ in ROWS} == {"__init__.py", "py.typed"}


def test_the_map_is_in_the_order_the_linter_holds():
    layers = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text("utf-8"), flags=re.DOTALL)[1]
    order = re.findall(r'"selfcal\.(\w+)"', layers)
    assert [room.removesuffix("/").removesuffix(".py") for room, _ in ROWS] == order[::-1]


def test_every_path_in_the_text_exists():
    for path in set(
        re.findall(r"`((?:core|diffusion|data|nets|methods|training|evaluation|report|experiments|cli)/[\w/.]+)`", TEXT)
    ):
        assert (SOURCE / path).exists(), path
    for path in set(re.findall(r"`(tests/[\w/.]+)`", TEXT)):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        m
        for row in ADDED.splitlines()
        for m in re.findall(r"`([A-Z_]{4,}|[a-z_]{8,}|Reference)`[^`]*?\(?`?([a-z]+/[\w/]+\.py)", row)
    ],
)
def test_every_table_to_add_a_row_to_is_where_it_says(name, path):
    file = ROOT / path if path.startswith("tests/") else SOURCE / path
    assert re.search(rf"^(class |def )?{name}\b", file.read_text("utf-8"), flags=re.MULTILINE)


def edited(folder: Path) -> Path:
    """A copy of the source, edited exactly as CONTRIBUTING prints it."""
    shutil.copytree(SOURCE, folder / "selfcal", ignore=shutil.ignore_patterns("__pycache__"))
    (term,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    (folder / "selfcal/methods/terms/gradient_norm.py").write_text(term)
    table = folder / "selfcal/methods/table.py"
    text = table.read_text("utf-8")
    for diff in re.findall(r"```diff\n(.*?)```", TEXT, flags=re.DOTALL):
        before = "".join(line[1:] + "\n" for line in diff.splitlines() if not line.startswith("+"))
        after = "".join(line[1:] + "\n" for line in diff.splitlines())
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    table.write_text(text)
    return folder


def test_a_method_of_ones_own(tmp_path):
    source = edited(tmp_path / "src")
    lines = [
        line
        for block in re.findall(r"```(?:python|diff)\n(.*?)```", TEXT, flags=re.DOTALL)
        for line in block.splitlines()
    ]
    assert len([line for line in lines if line.strip("+ ")]) <= 30

    def selfcal(*words):
        command = [sys.executable, "-m", "selfcal.cli", *words]
        environment = {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path), "COLUMNS": "200"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert "0.01·gn(labelled)" in selfcal("methods")
    selfcal("train", "moons", "--method", "cg-gn", "--labels", "0.05", "--steps", "20", "--out", "r")
    assert '"gn"' in (tmp_path / "r" / "log.jsonl").read_text()
    selfcal("sample", "r", "--count", "4", "--steps", "3", "--out", "s.npz")


def test_its_term_is_what_it_says(tmp_path):
    rooms: dict = {}
    exec(re.search(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)[1], rooms)
    mixture = three_classes()
    batch = perturbed(mixture, 50, (0.1, 5.0))
    exact = mixture.conditional_score(batch.x, batch.sigma, batch.y) - mixture.score(batch.x, batch.sigma)
    expected = 0.5 * (batch.sigma[:, None] * exact).square().sum(1).mean()
    torch.testing.assert_close(rooms["gradient_norm"]()(Reading(mixture.log_joint, batch)), expected)
