"""A dry run as a user types it: says what training would take, and leaves nothing behind."""

from __future__ import annotations

import pytest
import torch

from selfcal import cli


def test_as_typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = torch.random.get_rng_state()
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "digits", "--dry-run", "--out", "runs/r", "--set", "score.width=16"])
    assert not stop.value.code
    printed = " ".join(capsys.readouterr().out.split())
    assert "Nothing was written" in printed
    assert "20 times an image" in printed
    assert not list(tmp_path.iterdir())
    assert torch.equal(before, torch.random.get_rng_state())
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "digits", "--dry-run", "--out", "r", "--set", "score.network=cnn"])
    assert stop.value.code == 2
