"""Pictures on the way: they are there, they cost little, and training does not notice them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import selfcal
from selfcal import cli
from selfcal.core.settings import resolve
from selfcal.training import preview as previewing
from selfcal.training.preview import SHARE, STEPS, Previews, classes_shown

SMALL = {f"{role}.{name}": 8 for role in ("score", "classifier", "conditional") for name in ("width", "batch")}
SMALL |= {"run.save_every": 4, "run.log_every": 2, "score.dropout": 0.2, "classifier.dropout": 0.2}


@pytest.fixture
def free(monkeypatch):
    """Steps this quick leave no time for pictures."""
    monkeypatch.setattr(previewing, "SHARE", 1e9)


def trained(out, every, method="cg-sc-all", data="digits", steps=10):
    return selfcal.train(data, method, "2/class", out, steps=steps, settings=SMALL | {"run.preview_every": every})


def pictures(run):
    return sorted(p.name for p in run.path.glob("samples/*"))


def test_the_bits_are_those_of_a_run_that_nobody_watched(tmp_path, free):
    watched, alone = trained(tmp_path / "a", 3), trained(tmp_path / "b", 0)
    steps = ("00000003", "00000006", "00000009", "00000010")
    assert pictures(watched) == [f"preview-{stage}-{s}.png" for stage in ("classifier", "score") for s in steps]
    assert pictures(alone) == []
    bits = [
        {p.relative_to(run.path): p.read_bytes() for p in run.path.rglob("*") if p.suffix in (".safetensors", ".jsonl")}
        for run in (watched, alone)
    ]
    assert bits[0] == bits[1]
    assert len(bits[0]) > 6


def test_they_show_the_average_that_samples_are_drawn_from(tmp_path, free):
    """The last one of the guide: two of each of the first classes, guided, from the run's seed."""
    run = trained(tmp_path / "r", 10)
    last = Image.open(run.path / "samples" / "preview-classifier-00000010.png")
    y = classes_shown(10)
    made = run.generator.sample(y, previewing.Sampling(sampler=previewing.SAMPLER, steps=STEPS), seed=0)
    expected = previewing.captioned_grid(made.x.numpy(), y.numpy(), run.classes)
    assert np.array_equal(np.asarray(last), np.asarray(expected))


@pytest.mark.parametrize(("method", "stages"), [("cfg-all", {"conditional"}), ("dpt", {"conditional"})])
def test_every_method_shows_what_it_can(tmp_path, free, method, stages):
    """A classifier without a score model makes no pictures."""
    run = trained(tmp_path / "r", 5, method)
    assert {name.split("-")[1] for name in pictures(run)} == stages


def test_points_have_none(tmp_path, free):
    assert pictures(trained(tmp_path / "r", 5, data="moons")) == []


@pytest.mark.parametrize("classes", [1, 2, 5, 10, 100])
def test_few_images_whatever_the_number_of_classes(classes):
    y = classes_shown(classes)
    assert len(y) <= 16
    assert torch.bincount(y).min() >= 2
    assert len(y.unique()) == min(classes, 8)


class Slow:
    """Previews whose pictures take `price` seconds on a clock of their own."""

    def __init__(self, monkeypatch, run, price, every=10):
        self.now, self.drawn = 0.0, []
        monkeypatch.setattr(Previews, "picture", self.picture)
        self.price = price
        stage = run.stages[0]
        self.previews = Previews(run.directory, stage, {}, every, torch.device("cpu"), clock=lambda: self.now)

    def picture(self, network, evaluations=STEPS):
        self.now += self.price * evaluations / STEPS
        return b""

    def train(self, steps, seconds):
        for step in range(1, steps + 1):
            self.now += seconds
            if self.previews.due(step, steps, None):
                self.previews.draw(step, None)
                self.drawn.append(step)


@pytest.mark.parametrize("price", [0.1, 1.0, 5.0, 100.0])
def test_they_take_three_hundredths_of_the_time(tmp_path, monkeypatch, price):
    run = trained(tmp_path / "r", 0, steps=2)
    slow = Slow(monkeypatch, run, price)
    slow.train(1000, 0.1)
    last, estimate = price if price <= previewing.SHORT else 0, price / STEPS
    assert slow.previews.spent <= SHARE * slow.now + last + estimate
    assert (1000 in slow.drawn) == (price <= previewing.SHORT)
    if price == 0.1:
        assert len(slow.drawn) > 20, "and where they are cheap, they are drawn"


@pytest.mark.parametrize(("steps", "shown"), [(99, []), (100, [100]), (176, [176]), (300, [250, 300])])
def test_the_end_of_a_short_stage_is_shown_if_it_is_worth_a_look(tmp_path, monkeypatch, steps, shown):
    slow = Slow(monkeypatch, trained(tmp_path / "r", 0, steps=2), 0.01, every=250)
    slow.train(steps, 0.1)
    assert slow.drawn == shown


def test_presets_differ_in_how_often():
    assert resolve("digits").run.preview_every == 1000
    assert resolve("photos64").run.preview_every == 250


def test_as_typed(tmp_path, capsys, free):
    words = ["train", "digits", "--labels", "2/class", "--steps", "8", "--out", str(tmp_path / "r")]
    settings = SMALL | {"run.preview_every": 4}
    with pytest.raises(SystemExit) as stop:
        cli.main(words + [w for key, value in settings.items() for w in ("--set", f"{key}={value}")])
    assert not stop.value.code
    printed = capsys.readouterr()
    assert "preview-score-00000004.png" in "".join(printed.err.split()), "beside the bar"
    assert "the last of them " + str(tmp_path / "r/samples/preview-classifier-00000008.png") in printed.out
