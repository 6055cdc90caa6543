"""`selfcal show`: what a run is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from selfcal.cli.evaluate import print_numbers
from selfcal.cli.terminal import app, out_console, print_json, say
from selfcal.core.errors import SelfcalError


@app.command
def show(run: Path, /, *, json_: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """What a run is: method, data, step, settings, metrics, hashes of its weights.

    Example: selfcal show runs/digits --json

    Parameters
    ----------
    run
        A run directory, finished or not.
    json_
        Print everything as JSON.
    """
    from selfcal.training.description import config_of, describe, stages_of

    config = config_of(run)
    about = describe(run, config)
    if json_:
        print_json(about)
        return
    out_console.print(table_of(about, {stage.role for stage in stages_of(config)}))
    for problem in about["damaged"].values():
        say(problem)
    if about["diverged"]:
        out_console.print(f"diverged: {about['diverged']}", soft_wrap=True)
    if about["metrics"] and about["metrics"]["results"]:
        try:
            print_numbers(about["method"], about["metrics"]["results"], "metrics.json")
            if about["metrics"].get("earlier"):
                say(f"{len(about['metrics']['earlier'])} earlier evaluation(s) are in {run / 'metrics.json'}")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SelfcalError(
                f"{run / 'metrics.json'} is not as `selfcal evaluate` writes it; evaluate again"
            ) from None


def table_of(about: dict[str, Any], roles: set[str]) -> Table:
    """A line for each thing a run is made of; settings of networks that it has not are left out."""
    from selfcal.core.settings import NETWORKS

    data = about["data"]
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_row("method", about["method"])
    table.add_row(
        "data",
        f"{data['name']}: {data['examples']} examples, {len(data['classes'])} classes, {data['shape']}",
    )
    table.add_row("labels", f"{about['labels']} ({about['labelled']} seen), seed {about['seed']}")
    for name, words in plan_in_words(about).items():
        table.add_row(name, words)
    for network, steps in about["steps"].items():
        sha = about["weights_sha256"].get(network, "")
        table.add_row(network, f"step {about['step'].get(network, 0)} of {steps}   {sha[:16]}")
    for network, fractions in about["learned"].items():
        for name, value in fractions.items():
            table.add_row(f"{network} learned", f"{name.removesuffix('_fraction')} loss {value:.3f} of a zero score's")
    for section, values in about["settings"].items():
        if section not in set(NETWORKS) - roles:
            table.add_row(section, settings_in_words(values))
    return table


def plan_in_words(about: dict[str, Any]) -> dict[str, str]:
    """What the settings started from, the time they were planned for, and how long the run was before."""
    words = {"preset": about["preset"] or ""}
    if about["pace"]:
        each = ", ".join(f"{name} {seconds:.3g}" for name, seconds in about["pace"]["seconds"].items())
        words["planned"] = f"for {about['pace']['minutes']:g} minutes; seconds of a step: {each}"
    words["lengthened"] = "; ".join(f"from {in_short(steps)} steps" for steps in about["lengthened"])
    words["replanned"] = "; ".join(
        f"from {in_short(plan['steps'])} steps at {in_short(plan['reached']) or 'the start'}"
        for plan in about["replanned"]
    )
    return {name: text for name, text in words.items() if text}


def in_short(steps: dict[str, int]) -> str:
    return ", ".join(f"{network} {number}" for network, number in steps.items())


def settings_in_words(values: dict[str, Any]) -> str:
    """key=value for each; of an adopted network, what it is."""
    if values.get("network") == "adopted-module":
        made = values["adopted"].get("module")
        return f"adopted: a module of your own that predicts {values['adopted']['form']['predicts']}" + (
            f", made by {made}" if made else ""
        )
    if values.get("network") == "adopted":
        from selfcal.nets.foreign_schedules import in_words

        return f"adopted: {in_words(values['adopted'])}"
    return "  ".join(f"{k}={v}" for k, v in values.items() if not isinstance(v, dict))
