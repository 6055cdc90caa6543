"""What all commands share: the app they belong to, and where they print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from selfcal import __version__
from selfcal.core import progress
from selfcal.core.console import PlainConsole, knows_all_letters

if TYPE_CHECKING:
    from selfcal.run import Run

app = App(
    name="selfcal",
    help="Class-conditional image generation when only a few images are labelled.",
    version=__version__,
    suppress_keyboard_interrupt=False,
)
out_console = PlainConsole()
problem_console = PlainConsole(stderr=True)


def say_unfinished(run: Run) -> None:
    """A run that was stopped is used as it is, and its user is told so."""
    from selfcal.training.directory import unfinished_in_words

    if run.unfinished:
        say(f"{run.path} is unfinished: {unfinished_in_words(run.unfinished)}; what follows is of its checkpoints")


@contextmanager
def all_or_nothing(out: Path) -> Iterator[None]:
    """Ctrl-C meanwhile: say what is true of the output, which was not there before and is there whole or not at all."""
    try:
        yield
    except KeyboardInterrupt:
        if out.is_file() or (out.is_dir() and any(out.iterdir())):
            raise KeyboardInterrupt(f"interrupted, but {out} is written and whole") from None
        raise KeyboardInterrupt(f"interrupted; {out} was not written") from None


def only_the_first_speaks() -> None:
    """Of several processes that do one thing together; what goes wrong is said by whomever it happens to."""
    if os.environ.get("RANK", "0") != "0":
        out_console.quiet = progress.console.quiet = True


def print_json(value: Any) -> None:
    """For programs: whole whatever the terminal's letters are, and never wrapped."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    known = knows_all_letters(sys.stdout) and text.encode("utf-8", "ignore").decode("utf-8") == text
    print(text if known else json.dumps(value, indent=1))


def say(sentence: str) -> None:
    """A sentence as it is, however narrow the terminal: paths in it can be copied."""
    out_console.print(sentence, soft_wrap=True)
