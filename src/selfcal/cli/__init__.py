"""The command line: `commands` has them all, and each has a file of its name."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

IMPORTING = "<frozen importlib._bootstrap>"  # Python's name for the file of the code that imports


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Ctrl-C is a sentence from the first moment on, also while the rest is still being imported."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, interrupt)
    from selfcal.cli import commands

    commands.main(arguments)


def interrupt(_number: int, frame: FrameType | None) -> None:
    """What can be saved is saved; but an import is left at once: libraries take its interruption for other errors."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            print("interrupted; no file is half-written", file=sys.stderr, flush=True)
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt
