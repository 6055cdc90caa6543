"""Images that appear while they are sampled are those of `selfcal sample`, and stop when nobody looks."""

from __future__ import annotations

import shlex
import threading

import pytest
import torch

from command_line import typed
from selfcal.app.draw_tab import drawn
from selfcal.app.drawing import Frame, Wish, frames, newest
from selfcal.core.errors import SelfcalError


def wish(**changes):
    numbers = {"count": 6, "scale": 1.5, "steps": 5, "seed": 3} | changes
    return Wish.read(["3", "5"], numbers, changes.get("sampler", "dpm++2m-sde"))


def test_the_last_frame_is_what_sample_gives_and_those_before_lead_to_it(guided):
    found = list(frames(guided, wish(), every=0.0))
    made = guided.sample(["3", "5"], 6, scale=1.5, sampler="dpm++2m-sde", steps=5, seed=3)
    assert torch.equal(found[-1].x, made.x)
    assert torch.equal(found[-1].y, made.y)
    assert [frame.finished for frame in found] == [False] * (len(found) - 1) + [True]
    assert all(frame.of == 5 and frame.x.abs().max() <= 1 for frame in found)


def test_the_command_shown_makes_the_very_images(guided, tmp_path, capsys):
    command = shlex.split(wish().command(guided))
    assert command[:2] == ["selfcal", "sample"]
    code, _, err = typed(capsys, *command[1:-1], tmp_path / "images.npz")
    assert code == 0, err
    import numpy as np

    with np.load(tmp_path / "images.npz") as made:
        assert torch.equal(torch.as_tensor(made["x"]), list(frames(guided, wish()))[-1].x)


def test_a_batch_of_the_other_run_gives_its_noise(guided):
    """Noise is drawn batch by batch; whatever the second run's own batches are, it gets the first one's."""
    whole, parts = (list(frames(guided, wish(), batch))[-1] for batch in (None, 4))
    assert not torch.equal(whole.x, parts.x)
    assert torch.equal(whole.x, list(frames(guided, wish(), guided.generator.batch))[-1].x)
    assert parts.of == 10


def test_two_runs_beside_each_other(guided, own):
    *_, last = drawn({"one": guided, "two": own}, wish())
    left, right = last.split("<section")[1:]
    assert left.count("<img") == right.count("<img") == 6
    assert left.split("<figure>")[1] == right.split("<figure>")[1], "the same networks, the same noise: the same images"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 0}, "count is 0; from 1 to 100"),
        ({"count": 101}, "count is 101"),
        ({"count": "many"}, "'many'; a number"),
        ({"scale": float("nan")}, "λ is nan"),
        ({"scale": -1}, "λ is -1"),
        ({"steps": 10**9}, "steps is 1e"),
        ({"seed": None}, "seed is None"),
        ({"sampler": "best"}, "unknown sampler 'best'"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_words(guided, changes, words):
    with pytest.raises(SelfcalError, match=words):
        list(frames(guided, wish(**changes)))


def test_a_strange_class_is_refused(guided):
    with pytest.raises(SelfcalError, match="unknown class 'cat'"):
        list(frames(guided, Wish(("cat",), 1, 1.0, "heun", 2, 0)))


def test_runs_that_do_not_fit_are_not_compared(guided):
    from dataclasses import replace

    config = guided.config | {"data": guided.config["data"] | {"classes": list("abcdefghij")}}
    other = replace(guided, directory=replace(guided.directory, config=config))
    with pytest.raises(SelfcalError, match="different classes"):
        list(drawn({"one": guided, "two": other}, wish()))


def test_who_stops_reading_stops_the_work():
    shown, ended = [], threading.Event()

    def work(show):
        try:
            for step in range(1, 10**9):
                shown.append(step)
                show(Frame(torch.zeros(1), torch.zeros(1), step, 10**9))
        finally:
            ended.set()

    reading = newest(work, every=0.0)
    next(reading)
    reading.close()
    assert ended.wait(10)
    assert len(shown) < 10**8


def test_frames_come_while_the_work_goes_on_and_old_ones_are_left_out():
    seen = threading.Event()

    def work(show):
        show(Frame(torch.zeros(1), torch.zeros(1), 1, 9))
        assert seen.wait(10), "the first is read before the work is done"
        for step in range(2, 9):
            show(Frame(torch.zeros(1), torch.zeros(1), step, 9))
        return Frame(torch.ones(1), torch.zeros(1), 9, 9)

    done = []
    for frame in newest(work, every=0.0):
        done.append(frame.done)
        seen.set()
    assert done[0] == 1
    assert done[-1] == 9
    assert done == sorted(set(done))


def test_what_goes_wrong_beside_us_is_told():
    def work(show):
        raise SelfcalError("the disk is full")

    with pytest.raises(SelfcalError, match="the disk is full"):
        list(newest(work, every=0.0))
