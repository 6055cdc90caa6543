"""Trackers are told what log.jsonl is told, the settings and the pictures; what goes wrong there harms no run."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from accelerate import tracking as theirs
from PIL import Image

import selfcal
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.training import tracking

SMALL = {"score.width": 8, "classifier.width": 8, "run.log_every": 2}


class Kept:
    """A tracker that remembers."""

    made: list = []  # noqa: RUF012

    def __init__(self, run_name, logging_dir=None, name=None, dir=None):
        self.name, self.lines, self.images, self.config, self.over = run_name, [], [], {}, False
        Kept.made.append(self)

    def start(self):
        pass

    def store_init_configuration(self, values):
        self.config = values

    def log(self, values, step):
        self.lines.append((step, values))

    def log_images(self, values, step):
        self.images.append((step, values))

    def finish(self):
        self.over = True


class Broken(Kept):
    def log(self, values, step):
        raise OSError("no network")


@pytest.fixture
def installed(monkeypatch):
    Kept.made = []
    for name in tracking.TRACKERS:
        there = replace(tracking.TRACKERS[name], installed=lambda: True)
        monkeypatch.setitem(tracking.TRACKERS, name, there)
        monkeypatch.setitem(theirs.LOGGER_TYPE_TO_CLASS, name, Kept)


def test_a_tracker_is_told_every_line_the_settings_and_the_pictures(installed, tmp_path):
    out = tmp_path / "r"

    def draw(network, step, values):
        (out / "samples").mkdir(exist_ok=True)
        Image.new("RGB", (9, 7)).save(out / "samples" / f"preview-{network}-{step:08d}.png")

    settings = SMALL | {"terms.sc_weight": 7}
    selfcal.train("moons", "cg-sc-all", 0.05, out, steps=4, settings=settings, track="wandb", on_step=draw)
    (kept,) = Kept.made
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert len(kept.lines) == len(lines)
    steps = [step for step, _ in kept.lines]
    assert steps == sorted(steps), "one axis for all networks"
    assert steps[-1] == 8
    last = {f"classifier/{k}": v for k, v in lines[-1].items() if k not in ("network", "step")}
    assert kept.lines[-1][1] == pytest.approx(last)
    assert kept.config["terms.sc_weight"] == 7
    assert kept.config["method"] == "cg-sc-all"
    assert len(kept.images) == len(lines)
    assert kept.images[0][1]["preview-score"][0].shape == (7, 9, 3)
    assert kept.over


def test_a_tracker_that_fails_is_left_out(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(theirs.LOGGER_TYPE_TO_CLASS, "trackio", Broken)
    run = selfcal.train("moons", "cg", 0.05, tmp_path / "r", steps=4, settings=SMALL, track="trackio,tensorboard")
    assert run.directory.is_finished
    assert "--track trackio failed and is left out: no network" in " ".join(capsys.readouterr().err.split())
    assert Kept.made[1].lines


def test_trackers_that_cannot_be(tmp_path, monkeypatch):
    with pytest.raises(SelfcalError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        selfcal.train("moons", "cg", 0.05, tmp_path / "r", track="tensorbord")
    absent = replace(tracking.TRACKERS["wandb"], installed=lambda: False)
    monkeypatch.setitem(tracking.TRACKERS, "wandb", absent)
    with pytest.raises(SelfcalError, match=r"pip install 'selfcal\[wandb\]'"):
        selfcal.train("moons", "cg", 0.05, tmp_path / "r", track=["wandb"])
    assert not (tmp_path / "r").exists()


def test_track_as_typed(installed, tmp_path):
    small = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "moons", "--labels", "0.05", "--steps", "2", "--out", str(tmp_path / "r"), *small,
                  "--track", "tensorboard"])  # fmt: skip
    assert not stop.value.code
    assert Kept.made[0].lines


TRACKED = """
import sys
from pathlib import Path
from PIL import Image
import selfcal

def draw(network, step, values):
    Path("r/samples").mkdir(exist_ok=True)
    Image.new("RGB", (9, 7), (200, 100, 0)).save(f"r/samples/preview-{network}-{step:08d}.png")

small = {"score.width": 8, "classifier.width": 8, "run.log_every": 2, "terms.sc_weight": 7}
selfcal.train("moons", "cg-sc-all", 0.05, "r", steps=4, settings=small, on_step=draw, track=sys.argv[1])
"""
LINES = 6  # of log.jsonl: steps 1, 2 and 4 of two networks


def from_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "r" / "tracking" / "r"))
    events.Reload()
    pictures = {tag: events.Images(tag) for tag in events.Tags()["images"]}
    assert {(p.width, p.height) for found in pictures.values() for p in found} == {(9, 7)}
    numbers = {tag: [(s.step, s.value) for s in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    settings = "".join(file.read_text() for file in folder.glob("r/tracking/r/*/hparams.yml"))
    return numbers, sum(map(len, pictures.values())), "terms.sc_weight: 7" in settings


def from_wandb(folder):
    """Out of the file that `wandb sync` would send; its steps are those in the names of the pictures."""
    (file,) = folder.glob("r/tracking/wandb/offline-run-*/run-*.wandb")
    sent = file.read_bytes()
    values = dict.fromkeys(float(v) for v in re.findall(rb"classifier/ce\W{1,4}(\d\.\d+)", sent))
    pictures = [p.name for p in file.parent.glob("files/media/images/*.png")]
    steps = sorted(int(name.split("_")[1]) for name in pictures if name.startswith("preview-classifier_"))
    numbers = {"classifier/ce": [*zip(steps, values, strict=True)]}
    return numbers, len(pictures), re.search(rb"terms\.sc_weight\W{1,4}7", sent) is not None


def from_trackio(folder):
    base = sqlite3.connect(folder / "db" / "selfcal.db")
    rows = [(step, json.loads(values)) for step, values in base.execute("select step, metrics from metrics")]
    (settings,) = [json.loads(row[0]) for row in base.execute("select config from configs where run_name = 'r'")]
    flat = [(name, step, v) for step, values in rows for name, v in values.items()]
    numbers: dict = {}
    for name, step, value in flat:
        if isinstance(value, int | float):
            numbers.setdefault(name, []).append((step, value))
    assert len([*folder.rglob("db/media/**/*.png")]) >= 1
    return numbers, sum(isinstance(v, dict) for _, _, v in flat), settings["terms.sc_weight"] == 7


READ_BACK = {"tensorboard": from_tensorboard, "wandb": from_wandb, "trackio": from_trackio}


@pytest.mark.parametrize("name", READ_BACK)
def test_what_a_real_tracker_kept_is_what_the_log_says(tmp_path, name):
    """Scalars on one axis, every picture, the settings, read back from its own files."""
    if not tracking.TRACKERS[name].installed():
        pytest.skip(f"pip install 'selfcal[{name}]' to try it")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "db")}
    command = [sys.executable, "-c", TRACKED, name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr
    numbers, pictures, knows_settings = READ_BACK[name](tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines()]
    assert len(lines) == LINES
    expected = [(line["step"] + 4, line["ce"]) for line in lines if line["network"] == "classifier"]
    assert sorted(numbers["classifier/ce"]) == [(step, pytest.approx(ce)) for step, ce in expected]
    assert pictures == LINES
    assert knows_settings


def test_a_tracker_that_cannot_begin_is_one_sentence(installed, tmp_path, monkeypatch):
    class Locked(Kept):
        def start(self):
            raise RuntimeError("No API key configured.\nLog in.")

    monkeypatch.setitem(theirs.LOGGER_TYPE_TO_CLASS, "wandb", Locked)
    with pytest.raises(SelfcalError, match="--track wandb cannot begin: No API key configured; nothing is trained yet"):
        selfcal.train("moons", "cg", 0.05, tmp_path / "r", steps=4, settings=SMALL, track="wandb")
    assert not (tmp_path / "r" / "log.jsonl").exists()
    assert selfcal.train("moons", "cg", 0.05, tmp_path / "r", steps=4, settings=SMALL).directory.is_finished
