"""Every command that writes, small enough to be done by the hundred, and the folders that it needs."""

from __future__ import annotations

import shutil
import types
from concurrent.futures import Future
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

import selfcal
import selfcal.app.labelling
import selfcal.cli
import selfcal.experiments.compare.page
import selfcal.experiments.compare.runner
import selfcal.experiments.demo.demo
import selfcal.experiments.doctor.page
import selfcal.experiments.toy.toy
import selfcal.interop.export
import small
from fates import FULL, KILL, Command, _child, _do
from selfcal import data, evaluation
from selfcal.core.errors import SelfcalError
from selfcal.experiments import workers
from selfcal.experiments.compare import runner, tasks
from selfcal.experiments.demo import demo
from selfcal.experiments.toy import rival

TINY = {key: value for key, value in small.SETTINGS.items() if not key.startswith("run.")}
SET = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
BRIEF = [*SET, "--set", "run.save_every=3", "--set", "run.log_every=1"]
FEW = ["--count", "40", "--steps", "2", "--no-intervals"]


def typed(line, *more):
    def command():
        try:
            selfcal.cli.main([*line.split(), *more])
        except SystemExit as stop:
            if stop.code:
                raise

    return command


class Here:
    """Hands that do everything in this process, at once and by relative paths."""

    jobs = 1

    def __init__(self, *_):
        self.done = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @property
    def has_room(self):
        return not self.done

    def start(self, task, function, out, *arguments):
        future = Future()
        function(Path("grid"), *arguments)
        future.set_result(None)
        self.done.append((task, future))

    def ended(self, timeout=None):
        done, self.done = self.done, []
        return done


def in_one_process(patch):
    """No other processes, whose changes nobody would see, no clock, which nobody could compare, and a cache here."""
    still = types.SimpleNamespace(monotonic=lambda: 0.0, process_time=lambda: 0.0)
    for module in (demo, rival, tasks, runner):
        patch.setattr(module, "time", still)
    for module in (evaluation.cache, data.decoded):
        patch.setattr(module, "cache_folder", lambda: Path("cache"))
    patch.setattr(runner, "hands_for", Here)
    patch.setattr(demo, "side_by_side", lambda function, jobs, _: workers.side_by_side(function, jobs, 1))


def spoken(work):
    """As the command line would say it."""

    def command():
        try:
            work()
        except SelfcalError as error:
            print(error)
            raise SystemExit(2) from None

    return command


def save_labels():
    """What the button of the app does."""
    run = selfcal.load("f")
    stack = selfcal.app.labelling.Labelling().with_suggestions(run, 1).labelled(run, "a")
    stack.with_image(run, run.sample(count=1, steps=2).x).labelled(run, "b").save(run)


def save_over(name):
    return spoken(lambda: selfcal.load("d").sample(count=4, steps=2).save(name))


def make_old():
    for name in OLD:
        selfcal.load("d").sample(count=3, steps=2, seed=9).save(name)


def a_pipeline():
    import tiny_pipelines

    tiny_pipelines.save_trained(Path("pipe"), steps=60)


TOY = "toy --out toy --steps 3 --jobs 1 --methods cg"
GRID = "compare moons --labels 0.03 --steps 3 --count 40 --out grid --methods"


def points():
    typed("train moons --method cg-sc-all --labels 0.03 --steps 6 --out m", *BRIEF)()
    typed("evaluate m --scales 1", *FEW)()


def a_folder():
    rng = np.random.default_rng(0)
    for i in range(12):
        file = Path("pile", "ab"[i % 2], f"{i}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(file)
    typed("train pile --method cg --labels 2/class --steps 2 --out f", *SET)()


def images():
    typed("train digits --method cg --labels 0.02 --steps 2 --out d", *SET)()
    typed("sample d --count 3 --steps 2")()


def short_demo():
    demo.demo("demo", steps=2, count=40, scales=(1.0,))


OLD = ("old.npz", "old.zip", "old.png")
MAKERS = {
    "m": points,
    "d": images,
    "f": a_folder,
    "toy": typed(f"{TOY} --seeds 1"),
    "grid": typed(f"{GRID} cg", *SET),
    "pipe": a_pipeline,
    **dict.fromkeys(OLD, make_old),
}


def there(name):
    return lambda folder: (folder / name).exists()


QUICK = "d --count 4 --classes 1,2 --steps 2"
COMMANDS = [
    Command("train", typed("train moons --method cg-sc-all --labels 0.03 --steps 6 --out new", *BRIEF), continues=True),
    Command(
        "train longer",
        typed("train moons --method cg-sc-all --labels 0.03 --steps 9 --out m", *BRIEF),
        ("m",),
        continues=True,
    ),
    Command(
        "adopt",
        typed("adopt pipe --data digits --labels 0.02 --method cg --steps 4 --out new --set run.save_every=2"),
        ("pipe",),
        continues=True,
    ),
    Command("sample", typed(f"sample {QUICK}"), ("d",), is_done=there("d/samples/set-002")),
    Command("sample .npz", typed(f"sample {QUICK} --out new.npz"), ("d",), is_done=there("new.npz")),
    Command("sample .zip", typed(f"sample {QUICK} --out new.zip"), ("d",), is_done=there("new.zip")),
    Command("sample folder", typed(f"sample {QUICK} --out deep/new"), ("d",), is_done=there("deep/new")),
    Command("save over .npz", save_over("old.npz"), ("d", "old.npz"), fates=(KILL, FULL)),
    Command("save over .zip", save_over("old.zip"), ("d", "old.zip"), fates=(KILL, FULL)),
    Command("save over .png", save_over("old.png"), ("d", "old.png"), fates=(KILL, FULL)),
    Command("evaluate", typed("evaluate m --scales 1,2", *FEW), ("m",)),
    Command("evaluate digits", typed("evaluate d --scales 1", *FEW), ("d",)),
    Command("export", typed("export d --out new"), ("d",), is_done=there("new")),
    Command("suggest", typed("suggest d --count 2 --out new.csv"), ("d",), is_done=there("new.csv")),
    Command("app", spoken(save_labels), ("f",), fates=(KILL, FULL), is_done=there("f/labels/new-001")),
    Command(
        "doctor", typed("doctor m --minutes 0.01"), ("m",), clocked=[f"m/doctor.{x}" for x in ("json", "html", "npz")]
    ),
    Command("report", typed("report toy"), ("toy",)),
    Command("report grid", typed("report grid"), ("grid",)),
    Command("toy", typed(f"{TOY} --seeds 2"), ("toy",), continues=True),
    Command("compare", typed(f"{GRID} cg,cg-sc-all", *SET), ("grid",), continues=True),
    Command("demo", spoken(short_demo), fates=(KILL, FULL)),
]


@cache
def made(folder: Path, name: str) -> None:
    """What a command needs, made once in a child of this process."""
    if name in OLD:
        made(folder, "d")
    said = folder / f"{name}.said"
    assert _child(lambda: _do(MAKERS[name], folder), said) == 0, said.read_text()


def furnish(command, folder: Path, workspace: Path) -> None:
    """A workspace with what the command needs, and a file of somebody else's."""
    workspace.mkdir(parents=True)
    (workspace / "threes.png").write_bytes(b"somebody's own")
    for name in command.needs:
        made(folder, name)
        source = folder / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, workspace / name)
