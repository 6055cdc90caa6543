"""The README.md of an exported run: a model card as the Hugging Face Hub reads them.

What it was trained on, how many labels it saw, what was measured with which intervals, and what it is not for. Names
that users gave (classes, data, folders) are escaped; where the data lies is nobody's business and is left out.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCardData

from selfcal.core.escapes import markdown
from selfcal.core.reading import checked
from selfcal.core.version import __version__
from selfcal.data.label_files import is_label_file
from selfcal.evaluation.history import evaluations, weights_of
from selfcal.report.columns import CALIBRATION, RESULTS, Column
from selfcal.report.tables import distance, meaning
from selfcal.run import Run
from selfcal.training import records

TASK = "unconditional-image-generation"  # the Hub's nearest word: there is no prompt
MOST_CLASSES = 50  # named one by one
NOT_MEASURED = "It was not evaluated before it was exported: nothing is known of its quality."
OUTDATED = "It was trained on after its last evaluation, whose numbers are those of another model and left out."


def card(run: Run, title: str) -> str:
    """Markdown with its front matter; every file of the run that it quotes is checked first."""
    result, why_not = newest_result(run)
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)  # text, not HTML
    environment.filters |= {"escaped": markdown, "literal": repr}
    template = environment.from_string(Path(__file__).with_name("card.md").read_text("utf-8"))
    quality = {
        "rows": rows(result),
        "measured_scale": f"{result['scale']:g}" if result else "",
        "meaning": meaning(result) if result else "",
        "not_measured": why_not,
        "limits": limits(result),
    }
    return template.render(front_matter=front_matter(run, title, result), title=title, **facts(run), **quality)


def facts(run: Run) -> dict[str, Any]:
    """What the run's config.json says, and which λ to use."""
    config, (scale, chosen_by) = run.config, run.recommended_scale()
    channels, height, width = run.shape
    score = run.settings.score
    return {
        "version": __version__,
        "method": run.method.name,
        "method_title": run.method.title,
        "size": f"{width}×{height}, {'grey' if channels == 1 else f'{channels} channels'}",
        "classes": run.classes,
        "shown_classes": in_words(run.classes),
        "own_module": score.adopted.get("module") or "the adopted module"
        if score.network == "adopted-module"
        else None,
        "scale": f"{scale:g}",
        "scale_words": f"A `guidance_scale` of {scale:g} was chosen by {markdown(chosen_by)}."
        if chosen_by
        else f"No `guidance_scale` was chosen by measurement; {scale:g} is the method's usual one.",
        "data": config["data"]["name"],
        "data_sha256": config["data"]["sha256"],
        "examples": config["data"]["examples"],
        "labelled": config["labelled"],
        "labels": "by a table of labels" if is_label_file(config["labels"]) else f"--labels {config['labels']}",
        "steps": ", ".join(f"{stage.name} {stage.settings(run.settings).steps} steps" for stage in run.stages),
        "sigma_min": f"{run.noise.sigma_min:g}",
        "sigma_max": f"{run.noise.sigma_max:g}",
        "seed": config["seed"],
    }


def newest_result(run: Run) -> tuple[dict[str, Any] | None, str]:
    """The reported result of the newest evaluation, and why there is none if so."""
    report = next(evaluations(run.directory.metrics), None)
    if not report or not report["results"]:
        return None, NOT_MEASURED
    if report.get("weights") != weights_of(run.networks):
        return None, OUTDATED
    chosen = [r for r in report["results"] if r.get("chosen")]
    result = (chosen or report["results"])[0]
    return checked(result, records.Result, run.path / "metrics.json"), ""


def measured(result: dict[str, Any] | None) -> list[tuple[Column, float, list[float] | None]]:
    """(column, value, interval) of every number that there is."""
    intervals = (result or {}).get("intervals") or {}
    found = [(column, (result or {}).get(column.key), intervals.get(column.key)) for column in RESULTS]
    return [(c, v, i) for c, v, i in found if isinstance(v, int | float) and math.isfinite(v)]


def name_of(column: Column, result: dict[str, Any]) -> str:
    """To strangers a Fréchet distance is an FID in Inception's features alone."""
    ours = distance(result) if distance(result) != "FID" else f"FD in features of {result['features']}"
    return column.name if is_inceptions(result) else column.name.replace("FID", ours)


def is_inceptions(result: dict[str, Any]) -> bool:
    return str(result["features"]).startswith("inception")


def rows(result: dict[str, Any] | None) -> list[dict[str, str]]:
    """The table's."""
    return [
        {
            "title": f"{name_of(column, result)} {column.arrow}",
            "value": column.written(value),
            "interval": f"{column.written(around[0])} to {column.written(around[1])}" if around else "–",
        }
        for column, value, around in measured(result)
        if result is not None
    ]


def limits(result: dict[str, Any] | None) -> list[str]:
    """Those that numbers tell of."""
    found = {column.key: value for column, value, _ in measured(result)}
    said = []
    if "guide_accuracy" in found and "ece" in found:
        said.append(
            f"The classifier inside is right about {found['guide_accuracy']:.0%} of clean images, and its confidence "
            f"is off by {found['ece']:.0%} on average."
        )
    if found.get("sc_fraction", 0) > 0.95:
        said.append("Self-calibration hardly acted: the classifier's inner score is about as good as none.")
    if found.get("coverage", 1) < 0.5:
        said.append(f"Variety is lost: only {found['coverage']:.0%} of the training images have a sample near them.")
    return said


def in_words(classes: tuple[str, ...]) -> str:
    named = ", ".join(markdown(name) for name in classes[:MOST_CLASSES])
    rest = len(classes) - MOST_CLASSES
    return named + (f" and {rest} more" if rest > 0 else "")


def arguments(column: Column, result: dict[str, Any], around: list[float] | None) -> dict[str, Any] | None:
    """What a number goes by; those of the guide are of real images, so neither samples nor a scale belong to them."""
    drawn = {} if column in CALIBRATION else {"samples": result["samples"], "guidance_scale": result["scale"]}
    return drawn | ({"interval_95": around} if around else {}) or None


def front_matter(run: Run, title: str, result: dict[str, Any] | None) -> str:
    """YAML, written by the Hub's own library, so that no name can break out of it."""
    data = run.config["data"]["name"]
    numbers = [
        EvalResult(
            task_type=TASK,
            dataset_type=data,
            dataset_name=data,
            metric_type=column.key if is_inceptions(result) else column.key.replace("fid", "fd"),
            metric_name=name_of(column, result),
            metric_value=value,
            metric_args=arguments(column, result, around),
        )
        for column, value, around in measured(result)
        if result is not None
    ]
    tags = ["selfcal", "classifier-guidance", "class-conditional", "arxiv:2307.04081"]
    about: dict[str, Any] = {"library_name": "diffusers", "pipeline_tag": TASK, "tags": tags}
    if numbers:
        about |= {"model_name": title, "eval_results": numbers}
    return str(ModelCardData(**about).to_yaml())
