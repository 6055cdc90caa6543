"""Images that appear while they are sampled."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from queue import Queue
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.diffusion.generator import Sampling, class_index, spread
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.run import Run

MOST_IMAGES = 100  # of one click; no preset samples fewer at once, so that all appear together
MOST_STEPS = 200
LARGEST_SCALE = 10.0
LARGEST_SEED = 2**31 - 1
EVERY = 0.1  # seconds between two pictures on the way: more would cost time, and nobody sees them


@dataclass(frozen=True)
class Wish:
    """What is to be drawn, as it comes from a browser: distrusted."""

    classes: tuple[str, ...]  # all of them, if none is named
    count: int
    scale: float
    sampler: str
    steps: int
    seed: int

    @classmethod
    def read(cls, classes: Any, numbers: Mapping[str, Any], sampler: Any) -> Wish:
        """numbers: of count, scale, steps and seed; whatever is out of bounds is refused in one sentence."""
        if classes is not None and not isinstance(classes, list):
            raise SelfcalError(f"classes are {classes!r}; a list of names is needed")
        bounds = {"count": (1, MOST_IMAGES), "steps": (1, MOST_STEPS), "seed": (0, LARGEST_SEED)}
        whole = {name: int(within(name, numbers[name], *bounds[name])) for name in bounds}
        return cls(
            tuple(str(name) for name in classes or ()),
            scale=within("λ", numbers["scale"], 0, LARGEST_SCALE),
            sampler=str(sampler),
            **whole,
        )

    def y(self, run: Run) -> Tensor:
        """(count,) classes, in the run's order."""
        named = [class_index(run.classes, name) for name in self.classes] or list(range(len(run.classes)))
        return spread(sorted(set(named)), self.count)

    def how(self, run: Run) -> Sampling:
        return Sampling(None if unscaled(run) else self.scale, None, self.sampler, self.steps)

    def command(self, run: Run) -> str:
        """What makes the same images on the command line."""
        words = ["selfcal", "sample", str(run.path), "--count", str(self.count)]
        words += ["--classes", ",".join(self.classes)] if self.classes else []
        words += [] if unscaled(run) else ["--scale", f"{self.scale:g}"]
        words += ["--sampler", self.sampler, "--steps", str(self.steps), "--seed", str(self.seed)]
        return shlex.join([*words, "--out", "images.zip"])


@dataclass(frozen=True)
class Frame:
    """The images of a run on the way, (N, *) in [−1, 1], and how many of its evaluations are done."""

    x: Tensor
    y: Tensor
    done: int
    of: int

    @property
    def finished(self) -> bool:
        return self.done == self.of


class Stopped(Exception):
    """Nobody looks any more."""


def within(name: str, value: Any, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SelfcalError(f"{name} is {value!r}; a number from {low:g} to {high:g} is needed") from None
    if not low <= number <= high:
        raise SelfcalError(f"{name} is {number:g}; from {low:g} to {high:g} will do")
    return number


def unscaled(run: Run) -> bool:
    """A plain conditional model has no guidance to scale."""
    return run.method.guide == "conditional"


def frames(run: Run, wish: Wish, batch: int | None = None, every: float = EVERY) -> Iterator[Frame]:
    """Pictures on the way, the newest there is each time, and at last the images themselves.

    The same seed is the same noise, in whatever run of this shape. batch: of the run that this one is compared with,
    since noise is drawn batch by batch.
    """
    y, walk = wish.y(run), SAMPLERS.get(wish.sampler)
    generator = replace(run.generator, batch=batch or run.generator.batch)
    of = walk.evaluations(wish.steps) * -(-len(y) // generator.batch) if walk else 1
    canvas = torch.zeros(len(y), *run.shape)
    done = 0

    def work(show: Callable[[Frame], None]) -> Frame:
        def watch(start: int, x: Tensor) -> None:
            nonlocal done
            canvas[start : start + len(x)] = x.clamp(-1, 1).nan_to_num()
            done += 1
            if done < of:
                show(Frame(canvas.clone(), y, done, of))

        samples = generator.sample(y, wish.how(run), wish.seed, show_progress=False, watch=watch)
        return Frame(samples.x.nan_to_num(), y, of, of)

    yield from newest(work, every)


def newest(work: Callable[[Callable[[Frame], None]], Frame], every: float) -> Iterator[Frame]:
    """What `work` shows while it goes on beside us, the last one always; whoever stops reading stops it."""
    news: Queue[Frame | BaseException] = Queue()
    unread = threading.Event()

    def show(frame: Frame) -> None:
        if unread.is_set():
            raise Stopped
        news.put(frame)

    def run() -> None:
        try:
            news.put(work(show))
        except Stopped:
            pass
        except BaseException as error:  # told to whoever reads
            news.put(error)

    thread, shown = threading.Thread(target=run, daemon=True), -every
    thread.start()
    try:
        while True:
            item = news.get()
            while not news.empty():
                item = news.get()
            if isinstance(item, BaseException):
                raise item
            if item.finished or time.monotonic() - shown >= every:
                shown = time.monotonic()
                yield item
            if item.finished:
                return
    finally:
        unread.set()
        thread.join()
