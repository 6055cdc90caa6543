"""A full disk, a folder that may not be written, data that vanish: one sentence, the last checkpoint untouched."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import selfcal
import small
from selfcal.core.errors import SelfcalError
from selfcal.interop.export import export
from selfcal.training import checkpoints


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("disk") / "run"
    small.train(out)
    return out


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, and a function that mounts it anew with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")

    mount("size=64k")
    yield place, mount
    subprocess.run(["umount", "-l", str(place)], check=True)


def good_checkpoints(out):
    found = {}
    for network in ("score", "classifier"):
        folder = out / "checkpoints" / network
        for step in checkpoints.steps_saved(folder):
            checkpoints.verify(checkpoints.path_of(folder, step))
            found[network] = step
    return found


@pytest.mark.parametrize("kilobytes", [64, 100, 190])
def test_a_full_disk(small_disk, whole, kilobytes):
    place, mount = small_disk
    mount(f"remount,size={kilobytes}k")
    out = place / "run"
    with pytest.raises(SelfcalError, match="No space left on device") as problem:
        small.train(out)
    print(kilobytes, "KiB:", problem.value, good_checkpoints(out))
    assert not list(out.rglob("*.writing")), "half a checkpoint must not keep the disk full"
    for network, step in good_checkpoints(out).items():
        assert step % small.SAVE_EVERY == 0, network
    if kilobytes > 64:
        assert good_checkpoints(out), "this much has room for the first checkpoints"
    mount("remount,size=4m")
    small.train(out)
    small.assert_same(whole, out)


def test_a_read_only_disk(small_disk, whole):
    place, mount = small_disk
    mount("remount,size=4m")
    shutil.copytree(whole, place / "run")
    shutil.rmtree(place / "run" / "checkpoints" / "classifier")
    before = small.contents(place / "run")
    mount("remount,ro")
    for out in (place / "run", place / "new"):
        with pytest.raises(SelfcalError, match=r"cannot write to .*Read-only file system"):
            small.train(out)
    mount("remount,rw")
    assert small.contents(place / "run") == before
    assert not (place / "new").exists()


def test_a_limit_on_file_sizes(tmp_path, whole):
    """Another way to run out: the checkpoints of the score fit, its optimiser's moments just do not."""
    largest = max(len(c) for name, c in small.contents(whole).items() if "score" in name)
    out = tmp_path / "run"

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, largest - 1))
        with pytest.raises(SelfcalError, match=r"cannot save step 5 .*File too large; the checkpoints before"):
            small.train(out)

    assert small.ended(small.forked(limited)) == 0
    assert good_checkpoints(out) == {}
    small.train(out)
    small.assert_same(whole, out)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody whom permissions hold back")
def test_a_folder_that_may_no_longer_be_written(whole):
    """EACCES in the middle of training, as somebody without root's rights."""
    with tempfile.TemporaryDirectory() as shelf:
        os.chown(shelf, 65534, 65534)
        out = Path(shelf) / "run"
        folder, patience = out / "checkpoints" / "score", time.monotonic() + 120

        def unprivileged():
            os.setgid(65534)
            os.setuid(65534)
            with pytest.raises(SelfcalError, match=r"cannot save step .*Permission denied"):
                small.train(out, steps=100_000)

        child = small.forked(unprivileged)
        while not checkpoints.steps_saved(folder) and time.monotonic() < patience:
            time.sleep(0.01)
        folder.chmod(0o555)
        assert small.ended(child) == 0
        assert checkpoints.load_newest(folder)[0] >= small.SAVE_EVERY
        folder.chmod(0o755)


def test_data_that_vanished(tmp_path):
    rng, file, out = np.random.default_rng(0), tmp_path / "d.npz", tmp_path / "run"
    np.savez(file, x=rng.normal(size=(40, 2)), y=np.arange(40) % 2)
    settings = small.SETTINGS | {"run.keep": 9}
    selfcal.train(file, "cg", "4/class", out, steps=10, settings=settings)
    shutil.rmtree(out / "checkpoints" / "classifier")
    before = small.contents(out)
    file.unlink()
    with pytest.raises(SelfcalError, match=r"the data file .*d\.npz does not exist"):
        selfcal.train(file, "cg", "4/class", out, steps=10, settings=settings)
    with pytest.raises(SelfcalError, match=r"the data file .*d\.npz does not exist"):
        _ = selfcal.load(out).data
    assert small.contents(out) == before


def test_other_commands_on_a_full_disk(small_disk, images):
    """One sentence, nothing half-written and nothing in the way; also where a library of others does the writing."""
    place, mount = small_disk
    (place / "old.npz").write_bytes(b"earlier")
    samples = images.sample(count=400, steps=2)
    for name in ("old.npz", "new.zip", "folder"):
        with pytest.raises(SelfcalError, match=rf"cannot write .*{name}: No space left on device"):
            samples.save(place / name)
        assert {p.name: p.read_bytes() for p in place.iterdir()} == {"old.npz": b"earlier"}
    pytest.importorskip("diffusers")
    for kilobytes in (16, 64, 400):
        mount(f"remount,size={kilobytes}k")
        with pytest.raises(SelfcalError, match=r"cannot write .*pipeline: .*No space left on device"):
            export(images, place / "pipeline")
        assert [p.name for p in place.iterdir()] == ["old.npz"]
    mount("remount,size=8m")
    export(images, place / "pipeline")
