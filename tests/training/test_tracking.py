"""Trackers are told what log.jsonl is told, the settings and the pictures; what goes wrong there harms no run."""

from __future__ import annotations

import json

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

    def __init__(self, run_name, logging_dir=None):
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
        monkeypatch.setitem(tracking.TRACKERS, name, lambda: True)
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
    assert kept.images[0][1]["preview-score"].shape == (1, 7, 9, 3)
    assert kept.over


def test_a_tracker_that_fails_is_left_out(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(theirs.LOGGER_TYPE_TO_CLASS, "trackio", Broken)
    run = selfcal.train("moons", "cg", 0.05, tmp_path / "r", steps=4, settings=SMALL, track="trackio,tensorboard")
    assert run.directory.is_finished
    assert "Broken failed and is left out: no network" in " ".join(capsys.readouterr().err.split())
    assert Kept.made[1].lines


def test_trackers_that_cannot_be(tmp_path, monkeypatch):
    with pytest.raises(SelfcalError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        selfcal.train("moons", "cg", 0.05, tmp_path / "r", track="tensorbord")
    monkeypatch.setitem(tracking.TRACKERS, "wandb", lambda: False)
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
