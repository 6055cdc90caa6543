"""evaluate and show: how good a run is, and what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from selfcal.cli.terminal import Options, Whole, app, number, numbers, out_console
from selfcal.core.errors import SelfcalError


@app.command
def evaluate(
    run: Path,
    /,
    *,
    scales: str | None = None,
    count: Whole | None = None,
    sampler: str | None = None,
    steps: Whole | None = None,
    guide: str | None = None,
    option: Options = None,
    features: str = "auto",
    inception_weights: Path | None = None,
    intervals: bool = True,
    seed: Whole = 0,
) -> None:
    """Measure a run: every metric of the paper into RUN/metrics.json, and a table.

    Example: selfcal evaluate runs/digits --scales 0.5,1,2

    Parameters
    ----------
    run
        A finished run directory.
    scales
        Guidance scales separated by commas, or "paper" for its grid; the best is chosen on separate samples.
    count
        Samples per λ; as many as there are training images, at most 5000, if left out.
    sampler
        As for `selfcal sample`.
    steps
        As for `selfcal sample`.
    guide
        As for `selfcal sample`.
    option
        As for `selfcal sample`.
    features
        auto, cnn (trained on all labels; bundled for digits), identity (the numbers themselves),
        efficientnet-lite0 (its distance is FD-EffNetLite0, not FID) or inception.
    inception_weights
        The file of the TensorFlow-2015 Inception weights; implies --features inception.
    intervals
        95 % intervals for every number, by ten more measurements.
    seed
        Of the samples.
    """
    from selfcal.report.tables import print_results
    from selfcal.run import load

    opened = load(run)
    report = opened.evaluate(
        scales=wanted_scales(scales, opened.method.scales),
        count=count,
        sampler=sampler,
        steps=steps,
        guide=guide,
        features=features if inception_weights is None else f"inception:{inception_weights}",
        intervals=intervals,
        seed=seed,
        show_progress=True,
        **numbers(option),
    )
    if report["diverged"]:
        from selfcal.run import divergence_in_words

        out_console.print(f"{run} diverged: {divergence_in_words(report['diverged'])}", soft_wrap=True, highlight=False)
        return
    print_results(out_console, report["results"], str(run))
    if report["guide"]:
        clean = report["guide"][0]
        out_console.print(
            f"guide at σ_min ({report['guide_split']}): accuracy {clean['accuracy']:.3f}, "
            f"calibration error {clean['ece']:.3f}",
            highlight=False,
        )
    out_console.print(f"written to {opened.path / 'metrics.json'}", soft_wrap=True, highlight=False)
    if len(report["results"]) > 1:
        from selfcal.report.figures import guidance_curve

        figure = opened.path / "guidance.svg"
        figure.write_text(guidance_curve(report["results"]), encoding="utf-8")
        out_console.print(f"density, coverage and intra-FID over the scales: {figure}", soft_wrap=True, highlight=False)


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
    from selfcal.core.settings import NETWORKS
    from selfcal.report.tables import print_results
    from selfcal.run import load

    opened = load(run)
    about = opened.describe()
    if json_:
        print(json.dumps(about, indent=1, ensure_ascii=False))
        return
    data = about["data"]
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_row("method", about["method"])
    table.add_row(
        "data",
        f"{data['name']}: {data['examples']} examples, {len(data['classes'])} classes, {data['shape']}",
    )
    table.add_row("labels", f"{about['labels']} ({about['labelled']} seen), seed {about['seed']}")
    for network, wanted in about["steps"].items():
        sha = about["weights_sha256"].get(network, "")
        table.add_row(network, f"step {about['step'].get(network, 0)} of {wanted}   {sha[:16]}")
    unused = set(NETWORKS) - {stage.role for stage in opened.stages}
    for section, values in about["settings"].items():
        if section in unused:
            continue
        table.add_row(section, settings_in_words(values))
    out_console.print(table)
    for problem in about["damaged"].values():
        out_console.print(problem, highlight=False, soft_wrap=True)
    if about["diverged"]:
        out_console.print(f"diverged: {about['diverged']}", highlight=False)
    if about["metrics"] and about["metrics"]["results"]:
        try:
            print_results(out_console, about["metrics"]["results"], "metrics.json")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SelfcalError(
                f"{run / 'metrics.json'} is not as `selfcal evaluate` writes it; evaluate again"
            ) from None


def settings_in_words(values: dict[str, Any]) -> str:
    """key=value for each; of an adopted network, what it is."""
    if values.get("network") == "adopted":
        from selfcal.interop.diffusers import in_words

        return f"adopted: {in_words(values['adopted'])}"
    return "  ".join(f"{k}={v}" for k, v in values.items() if not isinstance(v, dict))


def wanted_scales(text: str | None, paper: tuple[float, ...]) -> list[float] | None:
    if text is None:
        return None
    asked = list(paper) if text == "paper" else [number(s, "--scales") for s in text.split(",")]
    return list(dict.fromkeys(asked))
