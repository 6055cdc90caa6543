"""`selfcal presets` and `selfcal settings` as typed; neither waits for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from selfcal import cli
from selfcal.core.settings import keys, presets, resolve


def printed(capsys, monkeypatch, *words):
    monkeypatch.setattr("selfcal.cli.presets.out_console.width", 400, raising=False)
    with pytest.raises(SystemExit) as stop:
        cli.main([*words])
    assert not stop.value.code
    return capsys.readouterr().out


def test_presets_are_listed_with_their_purpose(capsys, monkeypatch):
    out = printed(capsys, monkeypatch, "presets")
    for name in presets():
        assert f"\n {name} " in out
    assert "Images of 41 to 80 pixels" in out


def test_every_setting_is_listed(capsys, monkeypatch):
    out = printed(capsys, monkeypatch, "settings", "--preset", "photos64")
    for key in keys():
        section, name = key.split(".")
        key = f"score.{name}" if section in ("classifier", "conditional") else key  # told together
        assert f" {key} " in out
    (row,) = [line for line in out.splitlines() if line.startswith(" terms.sc_weight ")]
    assert row.split()[1:3] == ["1", f"{resolve('photos64').terms.sc_weight:g}"]
    (row,) = [line for line in out.splitlines() if line.startswith(" score.patch ")]
    assert row.split()[1:7] == ["1", "1", "|", "2", "|", "1"]  # of the score model, the classifier, the conditional one


def test_an_unknown_preset_is_one_sentence(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["settings", "--preset", "photo64"])
    assert stop.value.code == 2
    assert "did you mean 'photos64'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["presets"], ["settings", "--preset", "digits"]])
def test_without_torch(words):
    script = f"""
import sys
from selfcal import cli
try:
    cli.main({words!r})
except SystemExit as stop:
    assert not stop.code
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)
