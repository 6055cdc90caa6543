"""`selfcal app`: the local web page. (A module called app would hide the app that commands belong to.)"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfcal.cli.options import TrainedRun, Whole
from selfcal.cli.terminal import app, say, say_unfinished


@app.command(name="app")
def serve(
    run: TrainedRun,
    /,
    *others: Path,
    host: str = "127.0.0.1",
    port: Whole | None = None,
    token: Annotated[str | None, Parameter(env_var="SELFCAL_APP_TOKEN")] = None,
) -> None:
    """A web page on this machine: draw images, ask the guide about yours, label those it is least sure of.

    Example: selfcal app runs/digits runs/digits-plain

    Needs gradio: pip install 'selfcal[app]'.

    Parameters
    ----------
    others
        More run directories, to choose from and to compare side by side.
    host
        The address to listen on. Any but this machine's own (127.0.0.1) needs a token, which is made and printed.
    port
        The port to listen on; the first free one from 7860 on if left out.
    token
        What callers must know, 16 letters at least, instead of one that is made.
    """
    from selfcal.app.runs import opened
    from selfcal.app.server import Address, check_installed
    from selfcal.app.server import serve as serve_runs

    check_installed()
    address = Address(host, port, token).secured()
    runs = opened([run, *others])
    for the_run in runs.values():
        say_unfinished(the_run)
    try:
        serve_runs(runs, address, lambda url: say(f"Open {url} (Ctrl-C stops it)"))
    except KeyboardInterrupt:
        say("stopped")
