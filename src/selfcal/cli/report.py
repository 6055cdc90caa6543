"""`selfcal report`: a page made again from its results."""

from __future__ import annotations

from pathlib import Path

from selfcal.cli.terminal import app, say
from selfcal.core.errors import SelfcalError


@app.command
def report(folder: Path, /) -> None:
    """Make the page and tables of a comparison, a toy or a demo again, from its results files alone.

    Example: selfcal report runs/digits-grid

    Parameters
    ----------
    folder
        What `selfcal compare`, `selfcal toy` or `selfcal demo` made.
    """
    from selfcal.experiments import PAGES

    if not folder.is_dir():
        raise SelfcalError(f"the folder {folder} does not exist")
    for mark, write in PAGES.items():
        if (folder / mark).is_file():
            say(f"Open {write(folder)} in a browser.")
            return
    raise SelfcalError(f"{folder} holds no results: none of {', '.join(PAGES)} is there")
