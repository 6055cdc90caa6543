"""Memory of commands on many images, and what a second process is worth: commands as users type them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

import selfcal
from selfcal.data.sources import load_data

PROGRAM = """
import sys
from selfcal.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code, stop.code
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024)
"""
TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "selfcal.cli"]


@contextmanager
def place() -> Iterator[Path]:
    """A folder that goes, with a cache of its own in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def typed(folder: Path, *words: object, start: tuple[str, ...] = ("-c", PROGRAM)) -> tuple[float, str]:
    """(seconds, the last line printed), in a process of its own with one thread."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    command = [sys.executable, *start, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return time.perf_counter() - began, done.stdout.splitlines()[-1]


def training_on_many(images: int = 100_000, side: int = 64) -> tuple[float, float]:
    """Peak MB of `train` on a folder of so many JPEGs: when they are read, and when it is given again."""
    with place() as folder:
        rng = np.random.default_rng(0)
        for c in range(10):
            (folder / "photos" / f"class-{c}").mkdir(parents=True)
        for i in range(images):
            blocks = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            blocks.resize((side, side)).save(folder / "photos" / f"class-{i % 10}" / f"{i:06d}.jpg")
        words = ["train", folder / "photos", "--steps", "3", "--out"]
        first, again = (float(typed(folder, *words, folder / name)[1]) for name in ("first", "again"))
    return first, again


def small_run(folder: Path, shape: tuple[int, int, int], width: int) -> Path:
    """Hardly trained: what it draws is noise, as costly as images."""
    pixels = np.random.default_rng(0).integers(0, 256, (50, *shape), dtype=np.uint8)
    np.savez(folder / "data.npz", x=pixels, y=np.arange(50) % 10)
    size = {f"{role}.{key}": v for role in ("score", "classifier") for key, v in (("width", width), ("batch", 4))}
    return selfcal.train(
        folder / "data.npz", "cg", "all", folder / "run", steps=1, preset="photos32", settings=size
    ).path


def sampling_many(count: int = 50_000) -> tuple[float, float]:
    """Peak MB of `sample` of so many images of 32×32×3, and of one slice, which the networks take by themselves."""
    with place() as folder:
        run = small_run(folder, (32, 32, 3), 4)
        quick = ("--sampler", "euler", "--steps", "1", "--guide", "unconditional")
        peaks = [
            float(typed(folder, "sample", run, "--count", n, *quick, "--out", folder / f"{n}.npz")[1])
            for n in (count, 64)
        ]
    return peaks[0], peaks[1]


def second_process() -> dict[str, tuple[float, bool]]:
    """By command: how many times faster two processes are than one, one thread each; and whether they give the same."""
    found = {}
    with place() as folder:
        data = load_data("builtin:fashion")
        np.savez(folder / "some.npz", x=data.x.stored[:1000].numpy(), y=data.y[:1000].numpy())
        run = selfcal.train(folder / "some.npz", "cg", "all", folder / "run", steps=1, preset="fashion-small").path
        for name, words, file in (
            ("sample", ("--count", 4000, "--scale", "1", "--out", folder / "samples.npz"), folder / "samples.npz"),
            ("evaluate", ("--count", 1000, "--scales", "1,2", "--features", "identity"), run / "metrics.json"),
        ):
            seconds, made = [], []
            if name == "evaluate":  # what is known of the real images is kept: neither is to find it for the other
                typed(folder, name, run, "--count", 20, *words[2:], start=("-m", "selfcal.cli"))
            for start in (["-m", "selfcal.cli"], TWO):
                file.unlink(missing_ok=True)
                (folder / "samples.png").unlink(missing_ok=True)
                seconds.append(typed(folder, name, run, *words, start=tuple(start))[0])
                made.append(file.read_bytes())
            print(f"        {name}: {seconds[0]:.1f} s by one process, {seconds[1]:.1f} s by two", flush=True)
            found[name] = seconds[0] / seconds[1], made[0] == made[1]
    return found
