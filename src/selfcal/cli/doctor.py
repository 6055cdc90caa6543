"""`selfcal doctor`: what is wrong with a run, and what to do."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from selfcal.cli.options import Anyway, MovedData, Seed, TrainedRun
from selfcal.cli.terminal import app, print_json, say, say_unfinished


@app.command
def doctor(
    run: TrainedRun,
    /,
    *,
    minutes: Annotated[float, Parameter(help="How long it may take, about.")] = 3.0,
    json_: Annotated[bool, Parameter(name="--json", negative=(), help="Print findings and numbers as JSON.")] = False,
    held_out: Annotated[
        bool,
        Parameter(
            negative="--no-held-out", help="Whether classes that the method was not shown may judge it, where known."
        ),
    ] = True,
    data: MovedData = None,
    anyway: Anyway = False,
    seed: Seed = 0,
) -> None:
    """What is wrong with a run and what to do: a summary, and a page RUN/doctor.html.

    Does the guide know, does its calibration act, does it pull the right way, is it memorising, are labels wrong,
    which λ. Each finding has its number and ends in a command.
    Example: selfcal doctor runs/digits
    """
    from selfcal.experiments.doctor.page import write_page
    from selfcal.run import load

    the_run = load(run, data=data, anyway=anyway)
    if not json_:
        say_unfinished(the_run)
    diagnosis = the_run.diagnose(minutes=minutes, seed=seed, show_progress=True, held_out=held_out)
    page = write_page(the_run.path)
    if json_:
        print_json(diagnosis.in_json())
        return
    say(str(diagnosis))
    say(f"Open {page} in a browser.")
