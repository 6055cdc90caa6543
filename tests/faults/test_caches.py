"""The cache is never trusted: one flipped bit, half a file or none, and it is made again, with a sentence."""

from __future__ import annotations

import random

import pytest
import torch

import small
from selfcal.core.files import cache_folder
from selfcal.data.sources import load_data
from selfcal.evaluation import cache, judge


def flipped(content, rng):
    place = rng.randrange(len(content) * 8)
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


DAMAGES = {
    "a flipped bit": flipped,
    "half of it": lambda content, rng: content[: rng.randrange(1, len(content))],
    "nothing": lambda content, rng: b"",
    "zeros": lambda content, rng: content[:64] + bytes(len(content) - 64),
    "something else": lambda content, rng: b"\x80\x04" + rng.randbytes(200),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_damaged_is_made_again_and_said(capsys, damage):
    rng, values = random.Random(0), {"x": torch.arange(600.0).reshape(20, 30), "y": torch.arange(20)}
    made = []

    def make():
        made.append(1)
        return values

    cache.remembered("thing", make)
    good = cache.file_of("thing").read_bytes()
    for times in range(1, (400 if small.LONG else 40) + 1):
        cache.file_of("thing").write_bytes(DAMAGES[damage](good, rng))
        found = cache.remembered("thing", make)
        assert all(torch.equal(found[key], values[key]) for key in values)
        assert len(made) == times + 1, "noticed"
        assert cache.file_of("thing").read_bytes() == good, "mended"
    assert "is damaged" in capsys.readouterr().err
    cache.remembered("thing", make)
    assert "is damaged" not in capsys.readouterr().err


def test_the_numbers_do_not_change_with_a_damaged_cache(tmp_path, capsys):
    """FID, its features and the judge's opinion, of a run whose whole cache is spoiled bit by bit."""
    rng, run = random.Random(1), small.train(tmp_path / "run", steps=3, **{"run.save_every": 3})

    def numbers():
        result = run.evaluate(scales=[1.0], count=40, steps=2, intervals=False)["results"][0]
        return {key: value for key, value in result.items() if isinstance(value, float | int | str)}

    whole, kept = numbers(), sorted(cache_folder().glob("*.tensors"))
    assert kept, "there is something to spoil"
    for damage in DAMAGES.values():
        for file in kept:
            file.write_bytes(damage(file.read_bytes(), rng))
        assert numbers() == whole
        assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["a flipped bit", "nothing"])
def test_a_judge_is_trained_again(monkeypatch, damage, capsys):
    monkeypatch.setattr(judge, "STEPS", 2)
    data, rng = load_data("digits"), random.Random(2)
    first, sha256 = judge.trained_on(data)
    (file,) = cache_folder().glob("judge-*.tensors")
    file.write_bytes(DAMAGES[damage](file.read_bytes(), rng))
    again, same = judge.trained_on(data)
    assert same == sha256
    assert torch.equal(first(data.x[:5]), again(data.x[:5]))
    assert "is damaged" in capsys.readouterr().err


def test_a_judge_of_another_make_is_trained_again(monkeypatch, capsys):
    """Whole, but not what this version would have kept."""
    monkeypatch.setattr(judge, "STEPS", 2)
    data = load_data("digits")
    _, sha256 = judge.trained_on(data)
    (file,) = cache_folder().glob("judge-*.tensors")
    cache.keep(file.stem, {"strange": torch.zeros(2)})
    assert judge.trained_on(data)[1] == sha256
    assert "made again" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_stops_nothing(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.remembered("thing", lambda: {"x": torch.ones(1)})["x"] == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_full_disk_keeps_what_was_there(monkeypatch):
    cache.keep("thing", {"x": torch.ones(1)})

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_bytes", full)
    cache.keep("thing", {"x": torch.zeros(1)})
    assert cache.kept("thing")["x"] == 1
