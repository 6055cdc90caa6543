"""`selfcal evaluate`: how good a run is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcal.cli.options import (
    USUAL,
    Anyway,
    EvaluatedCount,
    MinutesAllowed,
    MovedData,
    Sampling,
    Scales,
    TestLabels,
    TrainedRun,
    Whole,
    number,
)
from selfcal.cli.terminal import app, out_console, say, say_unfinished
from selfcal.core.bounds import check_minutes

if TYPE_CHECKING:
    from selfcal.run import Run


@app.command
def evaluate(
    run: TrainedRun,
    /,
    *,
    scales: Scales = None,
    count: EvaluatedCount = None,
    minutes: MinutesAllowed = 4.0,
    sampling: Sampling = USUAL,
    features: str = "auto",
    inception_weights: Path | None = None,
    intervals: bool = True,
    test_labels: TestLabels = None,
    seed: Whole = 0,
    data: MovedData = None,
    anyway: Anyway = False,
) -> None:
    """Measure a run: every metric of the paper into RUN/metrics.json, beside earlier ones, and a table.

    Example: selfcal evaluate runs/digits --scales 0.5,1,2

    Parameters
    ----------
    features
        auto, cnn (trained on all labels), identity (the numbers themselves), efficientnet-lite0 or inception.
    inception_weights
        The file of the TensorFlow-2015 Inception weights; implies --features inception.
    intervals
        95 % intervals for every number, by ten more measurements.
    seed
        Of the samples.
    """
    from selfcal.run import load

    check_minutes(minutes)
    the_run = load(run, data=data, anyway=anyway, together=True)
    options: dict[str, Any] = {"count": count, "intervals": intervals, "seed": seed, **sampling.choices()}
    options |= {"scales": wanted_scales(scales, the_run.method.grids), "minutes": minutes, "test_labels": test_labels}
    options["features"] = features if inception_weights is None else f"inception:{inception_weights}"
    print_report(the_run, the_run.evaluate(show_progress=True, **options))


def wanted_scales(text: str | None, grids: Mapping[str, tuple[float, ...]]) -> list[float] | str:
    if text is None or text == "auto":
        return "auto"
    names = ", ".join(grids)
    values = grids[text] if text in grids else [number(s, f"--scales (numbers, or {names})") for s in text.split(",")]
    return list(dict.fromkeys(values))


def print_report(run: Run, report: dict[str, Any]) -> None:
    """The table, the guide's own quality, and over several scales a figure."""
    from selfcal.core.files import write_text
    from selfcal.training.directory import divergence_in_words

    if not run.team.is_main:
        return
    if report["diverged"]:
        say(f"{run.path} diverged: {divergence_in_words(report['diverged'])}")
        return
    say_unfinished(run)
    print_numbers(run.config["method"], report["results"], str(run.path), len(run.classes))
    if report["guide"]:
        clean = report["guide"][0]
        out_console.print(
            f"guide at σ_min ({report['guide_split']}): accuracy {clean['accuracy']:.3f}, "
            f"calibration error {clean['ece']:.3f}",
        )
    print_learned(report)
    print_classes(report["results"])
    earlier = len(report["earlier"])
    say(f"written to {run.path / 'metrics.json'}" + (f", beside {earlier} earlier evaluation(s)" if earlier else ""))
    print_other_counts(report)
    print_choice(run, report)
    if len(report["results"]) > 1:
        from selfcal.report.figures import guidance_curve

        figure = run.path / "guidance.svg"
        write_text(figure, guidance_curve(report["results"]))
        say(f"density, coverage and intra-FID over the scales: {figure}")


def print_other_counts(report: dict[str, Any]) -> None:
    """A plan that follows the machine's speed may draw fewer samples than the last time, and look worse by that."""
    count = report["results"][0]["samples"]
    others = {row["samples"] for earlier in report["earlier"] for row in earlier["results"]} - {count}
    if others:
        say(
            f"earlier evaluations had {' and '.join(f'{n:,}' for n in sorted(others))} samples: distances of different "
            f"counts do not compare; --count {max(others)} makes them"
        )


def print_choice(run: Run, report: dict[str, Any]) -> None:
    """Which λ `sample` will take now, by what it was chosen, and what the other way of choosing would have cost."""
    from selfcal.evaluation.choice import TIED, decides_nothing

    choice, scales = report["chosen"], [row["scale"] for row in report["selection"]]
    if len(scales) < 2:
        return
    if choice["scale"] is None:
        say(f"no λ is recommended; it could be chosen by {choice['by']}")
        return
    say(f"λ = {choice['scale']:g} was chosen by {choice['by']}; selfcal sample {run.path} takes it from now on")
    if choice["ratio"] is not None:
        say(
            f"without labels λ = {choice['without_labels']:g} would have been chosen, whose intra-FD is "
            f"{choice['ratio']:.3f} times that of λ = {choice['with_labels']:g} ({choice['ratio_on']})"
        )
    if choice["with_labels"] is None and decides_nothing(report["selection"]):
        say(f"that distance is the same at every λ, but for {TIED:.0%}: it decides nothing, and the largest was taken")
    elif choice["scale"] == max(scales):
        say(f"the largest scale, {max(scales):g}, was chosen: more guidance might be better still")


def print_classes(results: list[dict[str, Any]], most: int = 20) -> None:
    """Every class by itself at the chosen λ, where that can be told and they are not too many to read."""
    from selfcal.report.columns import COLUMNS

    rows: list[dict[str, Any]] = next((r["by_class"] for r in results if r["chosen"]), [])
    for row in rows if len(rows) <= most else []:
        known = [COLUMNS[key] for key in row if key in COLUMNS]
        name = results[0]["distance"]
        parts = [f"{c.name.replace('FID', name)} {c.written(row[c.key])}" for c in known]
        say(f"  {row['class']}: {', '.join(parts)}")


def print_learned(report: dict[str, Any]) -> None:
    """How much of its inner score the guide has learned, beside the score model, over the noise."""
    if report["learned"]:
        parts = [f"σ={row['sigma']:.2g}: {row['guide']:.2f}" for row in report["learned"]]
        say(f"the guide's inner score, its loss as a fraction of a zero score's: {', '.join(parts)}")
    if report["learned"] and all(row["score"] is not None for row in report["learned"]):
        parts = [f"{row['score']:.2f}" for row in report["learned"]]
        say(f"the score model's, at the same noise: {', '.join(parts)}")


def print_numbers(method: str, results: list[dict[str, Any]], title: str, classes: int | None = None) -> None:
    from selfcal.methods.table import find
    from selfcal.report.tables import print_results

    strength = "λ" if find(method).guide == "classifier" else "w"  # of classifier-free guidance
    print_results(out_console, results, title, strength, classes)
