"""Damaged checkpoints: always noticed, named, set aside; the one before is used."""

from __future__ import annotations

import json
import random
import shutil

import pytest
from accelerate import Accelerator

import selfcal
import small
from selfcal.core.errors import SelfcalError
from selfcal.core.settings import resolve
from selfcal.core.temporary import is_temporary
from selfcal.methods.table import METHODS
from selfcal.training import checkpoints
from selfcal.training.stage import new_learner

TRUNCATIONS, FLIPS = 20, 100


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """With naive JEM: its chains are a file of every classifier checkpoint, too."""
    out = tmp_path_factory.mktemp("damage") / "run"
    small.train(out, steps=15, method="cg-jem", **JEM)
    return out


JEM = {"terms.jem_naive": True, "terms.jem_steps": 2, "run.keep": 3}
FILES = ("weights.safetensors", "ema.safetensors", "optimizer.safetensors", "terms.safetensors", "state.json")


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_every_truncation_and_flipped_bit_is_noticed(tmp_path, whole, name):
    folder = tmp_path / "classifier"
    shutil.copytree(whole / "checkpoints" / "classifier", folder)
    file, rng = folder / "step-00000015" / name, random.Random(name)
    good = file.read_bytes()
    assert checkpoints.load_newest(folder)[0] == 15
    damaged = [good[: rng.randrange(len(good))] for _ in range(TRUNCATIONS)]
    for place in (rng.randrange(8 * len(good)) for _ in range(FLIPS)):
        flipped = bytearray(good)
        flipped[place // 8] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    for content in damaged:
        file.write_bytes(content)
        for read in (checkpoints.load_newest, checkpoints.load_average):
            with pytest.raises(checkpoints.Damaged, match="is damaged"):
                read(folder)
    file.write_bytes(good)
    assert checkpoints.load_newest(folder)[0] == 15


def broken_copy(whole, out, *steps, network="classifier"):
    shutil.copytree(whole, out)
    for step in steps:
        file = checkpoints.path_of(out / "checkpoints" / network, step) / "ema.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    return out


@pytest.mark.parametrize("network", ["score", "classifier"])
@pytest.mark.parametrize("steps", [(15,), (15, 10)])
def test_the_one_before_is_used_and_the_run_ends_with_the_same_bits(tmp_path, whole, capfd, network, steps):
    out = broken_copy(whole, tmp_path / "run", *steps, network=network)
    with pytest.raises(SelfcalError, match=r"ema\.safetensors is damaged"):
        selfcal.load(out).sample(count=2, steps=2)
    small.train(out, steps=15, method="cg-jem", **JEM)
    said = capfd.readouterr().err
    for step in steps:
        assert f"step-{step:08d}/ema.safetensors is damaged" in said
        assert f"set aside as damaged-1-step-{step:08d}" in said
        shutil.rmtree(out / "checkpoints" / network / f"damaged-1-step-{step:08d}")
    small.assert_same(whole, out)


def test_none_is_good(tmp_path, whole):
    out = broken_copy(whole, tmp_path / "run", 5, 10, 15)
    before = small.contents(out)
    for _ in range(2):  # the second time, too: nothing begins anew behind one's back
        with pytest.raises(SelfcalError, match=r"no checkpoint in .*classifier is good: .*Remove that folder"):
            small.train(out, steps=15, method="cg-jem", **JEM)
        assert small.contents(out) == before


def test_lost_files_and_foreign_steps(tmp_path, whole):
    for number, name in enumerate((*FILES, "manifest.json")):
        folder = tmp_path / str(number) / "classifier"
        shutil.copytree(whole / "checkpoints" / "classifier", folder)
        (folder / "step-00000015" / name).unlink()
        with pytest.raises(checkpoints.Damaged, match="is damaged"):
            checkpoints.load_newest(folder)
        shutil.rmtree(folder / "step-00000015")
        (folder / "step-00000010").rename(folder / "step-00000011")
        with pytest.raises(checkpoints.Damaged, match="tells of another step"):
            checkpoints.load_newest(folder)


def test_a_whole_checkpoint_of_another_network_is_refused(tmp_path, whole):
    """Here they are even of one shape."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    shutil.rmtree(out / "checkpoints" / "classifier")
    shutil.copytree(out / "checkpoints" / "score", out / "checkpoints" / "classifier")
    for use in (lambda: selfcal.load(out).networks, lambda: small.train(out, steps=15, method="cg-jem", **JEM)):
        with pytest.raises(SelfcalError, match="tells of another network"):
            use()


def test_a_network_of_another_size_is_refused(tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    config = json.loads((out / "config.json").read_text())
    config["settings"]["classifier"]["width"] = 2**16
    config["settings"]["classifier"]["blocks"] = 2**10
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(SelfcalError, match=r"is not the one that its config\.json describes"):
        _ = selfcal.load(out).networks
    learner = new_learner(
        METHODS["cg"].stages(resolve("moons"))[1], resolve("moons"), (2,), 2, 0, Accelerator(cpu=True)
    )
    with pytest.raises(SelfcalError, match="step 15 does not fit this network"):
        learner.restore(*checkpoints.load_newest(out / "checkpoints" / "classifier")[:2])


def test_files_reach_the_disk_before_their_name_does(tmp_path, monkeypatch):
    """Every file of a checkpoint is synced, then its folder, then the rename, then the folder around it."""
    import os
    from pathlib import Path

    import torch

    done, fsync, rename = [], os.fsync, Path.rename

    def seen_fsync(handle):
        done.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def seen_rename(path, target):
        done.append(("rename", str(target)))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "rename", seen_rename)
    folder = tmp_path / "score"
    final = checkpoints.save(folder, 5, {g: {"a": torch.zeros(2)} for g in checkpoints.GROUPS}, {})
    renamed = done.index(("rename", str(final)))
    synced = [Path(path) for what, path in done[:renamed] if what == "sync"]
    beside = synced[-1]
    assert is_temporary(beside.name)
    assert beside.parent == folder
    assert {p.name for p in synced if p.parent == beside} == {p.name for p in final.iterdir()}
    assert tmp_path in synced, "the new folder's own name must last, too"
    assert done[-1] == ("sync", str(folder))
