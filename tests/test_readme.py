"""What the README shows must run."""

from __future__ import annotations

import re
from pathlib import Path

import selfcal

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
