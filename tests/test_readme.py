"""What the README shows must run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import selfcal
from selfcal import cli

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    """As printed, but for the number of steps."""
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(example.strip().splitlines()) <= 7
    whole = selfcal.train
    monkeypatch.setattr(selfcal, "train", lambda *a, **k: whole(*a, **k, steps=20), raising=False)
    exec(example, {})
    assert (tmp_path / "threes.npz").exists()
    assert (tmp_path / "runs" / "digits" / "metrics.json").exists()
    assert capsys.readouterr().out.startswith("tensor([")


def test_every_command_shown_exists_and_parses():
    shown = re.findall(r"^(selfcal .*?)(?:\s+#.*)?$", README, flags=re.MULTILINE)
    shown += re.findall(r"`(selfcal [a-z]+ [^`]+)`", README)
    assert len(shown) >= 7
    for line in shown:
        cli.app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_every_link_within_the_project_leads_somewhere():
    root = Path(__file__).parents[1]
    for page in [root / "README.md", root / "CONTRIBUTING.md", *root.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
