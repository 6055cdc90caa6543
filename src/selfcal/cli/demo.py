"""`selfcal demo`: the paper's claim on digits."""

from __future__ import annotations

from pathlib import Path

from selfcal.cli.options import (
    Count,
    Seed,
    Steps,
)
from selfcal.cli.terminal import app, out_console, say


@app.command
def demo(*, out: Path = Path("runs/demo"), seed: Seed = 0, steps: Steps = None, count: Count = 1800) -> None:
    """Show the paper's claim on digits with 2 % labels, in minutes.

    Trains, samples and evaluates CG and CG-SC-all, and writes DIR/report.html and DIR/results.json.
    Example: selfcal demo --out runs/demo

    Parameters
    ----------
    out
        Folder for the page, the results and the two runs; the same command continues an interrupted one.
    """
    from selfcal.core.reading import read_record
    from selfcal.experiments.demo.demo import demo as run_demo
    from selfcal.report.records import Results
    from selfcal.report.tables import print_results

    page = run_demo(out, seed=seed, steps=steps, count=count, show_progress=True)
    results = read_record(out / "results.json", Results)
    print_results(out_console, [r for r in results if r["chosen"]], "at the chosen λ")
    say(f"Open {page} in a browser.")
