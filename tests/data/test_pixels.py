"""Images that stay bytes: the same floats as ever when taken; of a large folder decoded once, mapped from a file."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from PIL import Image

from selfcal.core.errors import SelfcalError
from selfcal.core.files import cache_folder
from selfcal.data import images, pile
from selfcal.data.pixels import Pixels, same_images, some
from selfcal.data.sources import load_data

BYTES = torch.arange(256, dtype=torch.uint8).repeat(3).view(12, 1, 8, 8)
FLOATS = torch.as_tensor(BYTES.numpy().astype(np.float32) / 127.5 - 1.0)


def test_what_is_taken_of_them_are_the_floats_of_ever():
    x = Pixels(BYTES)
    assert (len(x), x.shape, x.ndim) == (12, BYTES.shape, 4)
    for pick in (slice(2, 5), torch.tensor([3, 3, 0]), [1, 2], torch.arange(12) % 2 == 0, 7):
        assert torch.equal(x[pick], FLOATS[pick])
        if not isinstance(pick, int):
            assert torch.equal(some(x, pick)[:], some(FLOATS, pick))
            assert some(x, pick).stored.dtype == torch.uint8
    assert torch.equal(torch.cat([*x.split(5)]), FLOATS)
    assert torch.equal(torch.stack([*x]), FLOATS)


def test_what_else_tensors_can_do_is_done_on_floats():
    x = Pixels(BYTES)
    assert torch.equal(x, FLOATS)
    assert torch.equal(FLOATS + x, 2 * FLOATS)
    assert x.min() == -1
    assert np.array_equal(np.asarray(x), FLOATS.numpy())
    with pytest.raises(AttributeError, match="no such"):
        _ = x.such


def test_an_npz_of_bytes_is_not_unpacked_to_floats_but_known_by_the_same_hash(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (7, 6, 6, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=values, y=np.arange(7) % 2)
    data = load_data(tmp_path / "a.npz")
    assert isinstance(data.x, Pixels)
    floats = np.ascontiguousarray(values.transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1.0)
    digest = hashlib.sha256(repr((data.shape, data.classes)).encode())
    digest.update(floats.tobytes())
    digest.update(data.y.numpy().tobytes())
    assert data.sha256 == digest.hexdigest(), "runs of before recognise their data"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Counts as large."""
    monkeypatch.setattr(pile, "LARGE", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for name in ("a/0.png", "a/1.png", "b/2.png", "test/a/3.png"):
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(tmp_path / "d" / name)
    return tmp_path / "d"


def in_memory(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pile, "LARGE", 2**30)
        patch.setenv("XDG_CACHE_HOME", str(folder.parent / "no-cache"))
        return load_data(folder)


def same(a, b):
    return (a.sha256, a.names, a.notes) == (b.sha256, b.names, b.notes) and torch.equal(a.x_test[:], b.x_test[:])


def test_a_large_folder_is_decoded_once_and_mapped(folder, monkeypatch):
    first = load_data(folder)
    assert first.x.mapping is not None
    assert same(first, in_memory(folder))
    monkeypatch.setattr(images, "pixels", None)
    monkeypatch.setattr(images, "header", None)
    assert same(load_data(folder), first), "nothing was opened again"


def test_a_folder_that_changes_is_decoded_again_and_its_old_state_forgotten(folder):
    before = load_data(folder)
    Image.new("RGB", (6, 6), "red").save(folder / "a" / "0.png")
    after = load_data(folder)
    assert before.sha256 != after.sha256
    assert same(after, in_memory(folder))
    assert len([*cache_folder().glob("pixels-*.bytes")]) == 1


@pytest.mark.parametrize("what", ["flipped bit", "short", "no bytes", "strange record"])
def test_what_is_damaged_in_the_cache_is_said_and_read_again(folder, capsys, what):
    data = load_data(folder)
    (kept,) = cache_folder().glob("pixels-*.bytes")
    content = bytearray(kept.read_bytes())
    del data
    if what == "flipped bit":
        content[5] ^= 1
        kept.write_bytes(content)
    elif what == "short":
        kept.write_bytes(content[:-1])
    elif what == "no bytes":
        kept.unlink()
    else:
        record = kept.with_suffix(".json")
        record.write_text(record.read_text().replace('"images": 4', '"images": 3'))
    assert same(load_data(folder), in_memory(folder))
    assert "the images are read again" in " ".join(capsys.readouterr().err.split())
    assert same(load_data(folder), in_memory(folder))
    assert "damaged" not in capsys.readouterr().err, "and is whole afterwards"


def test_without_a_cache_to_write_to_the_images_are_held_in_memory(folder, capsys):
    (folder.parent / "cache").write_text("a file, where the cache should be")
    assert same(load_data(folder), in_memory(folder))
    assert "held in memory" in " ".join(capsys.readouterr().err.split())


def test_broken_files_are_left_out_or_refused_as_ever(folder):
    (folder / "a" / "1.png").write_bytes(b"nothing")
    with pytest.raises(SelfcalError, match="skip-broken"):
        load_data(folder)
    assert not [*cache_folder().glob("pixels-*")]
    for _ in range(2):
        data = load_data(folder, skip_broken=True)
        assert data.names == ("a/0.png", "b/2.png")
        assert "skipped, since they cannot be read: a/1.png" in data.notes[0]
        assert data.files.skipped == ("a/1.png",)


def test_the_same_images_are_told_whether_bytes_or_floats():
    stored = torch.randint(0, 256, (600, 1, 2, 2), dtype=torch.uint8)
    other = stored.clone()
    other[-1, 0, 1, 1] ^= 1
    assert same_images(Pixels(stored), Pixels(stored).float())
    assert not same_images(Pixels(stored), Pixels(other))
    assert not same_images(Pixels(stored), Pixels(stored[:-1]))
