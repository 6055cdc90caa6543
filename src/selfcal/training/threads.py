"""On how many threads a run is trained: sums are cut into as many parts, so that their last bits depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from selfcal.core.progress import say
from selfcal.training.directory import RunDirectory


@contextmanager
def as_recorded(run: RunDirectory, speak: bool) -> Iterator[None]:
    """The threads that the run began with, so that it ends with the same bits wherever it is continued; then as before.

    speak: whether to say so where other threads would be used here.
    """
    here = torch.get_num_threads()
    begun_with = run.config.get("threads") or here  # older runs do not tell
    if begun_with != here and speak and run.unfinished:
        say(
            f"{run.path} goes on with {begun_with} thread{'s' * (begun_with > 1)}, as it began, and not the {here} of "
            "this machine: other threads give other last bits"
        )
    torch.set_num_threads(begun_with)
    try:
        yield
    finally:
        torch.set_num_threads(here)
