"""Progress on long work: one bar with rate, loss and time left. On stderr, so that stdout stays data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from selfcal.core.console import PlainConsole

console = PlainConsole(stderr=True)


def lines_only() -> None:
    """Plain lines instead of a live bar, for processes that share a terminal."""
    global console
    console = PlainConsole(stderr=True, force_terminal=False)


def say(text: str) -> None:
    """A line that the user should see, whatever else is on the screen."""
    console.print(text, soft_wrap=True)


class Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed and speed >= 10 else f"{speed:.2g}/s" if speed else "")


def wanted(show: bool | None) -> bool:
    """Unless somebody says: in a notebook, where people wait and no command line speaks to them."""
    return in_notebook() if show is None else show


def in_notebook() -> bool:
    """Without importing IPython, which who has it here has imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


Tick = Callable[[int, str], None]
"""(advance by, note to show)."""


@contextmanager
def bar(title: str, total: int, done: int = 0, show: bool = True) -> Iterator[Tick]:
    """`with bar("score", 8000) as tick: tick(1, "loss 0.51")`. Without a terminal, a line every few seconds."""
    if not show:
        yield _silent
    elif console.is_terminal:
        with _rich() as progress:
            task = progress.add_task(title, total=total, completed=done, note="")

            def tick(advance: int, note: str) -> None:
                progress.advance(task, advance)
                if note:
                    progress.update(task, note=note)

            yield tick
    else:
        yield _lines(title, total, done)


def _silent(advance: int, note: str) -> None:
    pass


def _rich() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
    )


def _lines(title: str, total: int, done: int, seconds: float = 10.0) -> Tick:
    """For logs: the first tick, then a line every few seconds, and the last."""
    began, start, last, words = time.monotonic(), done, -seconds, ""

    def tick(advance: int, note: str = "") -> None:
        nonlocal done, last, words
        done, words = done + advance, note or words
        now = time.monotonic() - began
        if now - last >= seconds or done == total:
            last, rate = now, (done - start) / max(now, 1e-9)
            known = now > 0.5 and rate  # the first tick of many comes before anything could be timed
            pace = f"{rate:,.1f}/s  {(total - done) / rate:.0f} s left" if known else ""
            console.print("  ".join(filter(None, (f"{title}: {done}/{total}", pace, words))), soft_wrap=True)

    return tick
