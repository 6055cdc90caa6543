"""Draw: classes, λ, sampler, steps and seed on one side, the images as they come on the other."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from selfcal.app.drawing import LARGEST_SCALE, LARGEST_SEED, MOST_IMAGES, MOST_STEPS, Wish, frames, unscaled
from selfcal.app.events import ONE_AT_A_TIME, PRIVATE, spoken
from selfcal.app.pictures import Side, tiles
from selfcal.app.runs import found
from selfcal.core.errors import SelfcalError
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.run import Run

NO_OTHER = "no other"
FEW_CLASSES = 30  # up to which all are in sight; above it they are searched
HINT = "<p class='sc-note'>Pick classes (none means all of them), and draw. A move of λ draws again.</p>"


def lay_out(runs: Mapping[str, Run], chosen: gr.Dropdown) -> None:
    first = next(iter(runs.values()))
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            classes = class_chooser(runs, first)
            count = gr.Slider(1, MOST_IMAGES, value=64, step=1, label="Images", elem_id="count")
            scale = gr.Slider(0, LARGEST_SCALE, step=0.1, label="λ, the strength of guidance", elem_id="scale")
            other = gr.Dropdown(
                [NO_OTHER, *runs],
                value=NO_OTHER,
                label="Beside it, from the same noise",
                elem_id="other",
                filterable=False,
            )
            other.visible = len(runs) > 1
            sampler, steps, seed = how_chooser()
            with gr.Row():
                draw = gr.Button("Draw", variant="primary", elem_id="draw", min_width=100)
                stop = gr.Button("Stop", elem_id="stop", min_width=100)
        with gr.Column(scale=3, min_width=300):
            shown = gr.HTML(HINT, elem_id="images")
    for component, value in zip((classes, scale, sampler, steps), usual(first), strict=True):
        for name, changed in value.items():
            setattr(component, name, changed)
    wish = [chosen, other, classes, count, scale, sampler, steps, seed]
    # preprocess: gradio would take a number out of bounds for an error of ours, and log it; Wish.read says it in words
    quiet: dict[str, Any] = {
        "show_progress": "hidden",
        "trigger_mode": "always_last",
        "preprocess": False,
    } | ONE_AT_A_TIME
    drawing = gr.on([draw.click, scale.release], spoken(drawer(runs)), wish, shown, **quiet)
    stop.click(None, cancels=[drawing], queue=False)
    sampler.input(lambda name: usual_steps(str(name)), sampler, steps, **PRIVATE)
    chosen.change(spoken(updater(runs)), chosen, [classes, scale, sampler, steps], **PRIVATE)


def class_chooser(runs: Mapping[str, Run], first: Run) -> Component:
    few = max(len(run.classes) for run in runs.values()) <= FEW_CLASSES
    kind: Callable[..., Component] = gr.CheckboxGroup if few else gr.Dropdown
    return kind(list(first.classes), label="Classes", elem_id="classes", **({} if few else {"multiselect": True}))


def how_chooser() -> tuple[gr.Dropdown, gr.Slider, gr.Number]:
    with gr.Accordion("Sampler, steps, seed", open=False):
        sampler = gr.Dropdown(list(SAMPLERS), label="Sampler", elem_id="sampler", filterable=False)
        steps = gr.Slider(1, MOST_STEPS, step=1, label="Steps", elem_id="steps")
        seed = gr.Number(0, precision=0, minimum=0, maximum=LARGEST_SEED, label="Seed", elem_id="seed")
        another = gr.Button("Another seed", size="sm", elem_id="another")
    another.click(lambda: random.randrange(LARGEST_SEED), None, seed, **PRIVATE)
    return sampler, steps, seed


def usual(run: Run) -> list[dict[str, Any]]:
    """What the run would be sampled with unless one says, for the classes, λ, the sampler and its steps."""
    scale = min(run.recommended_scale()[0], LARGEST_SCALE)
    name = "w, the strength of guidance" if run.method.guide == "classifier-free" else "λ, the strength of guidance"
    sampler = run.settings.sampling.sampler
    steps = run.settings.sampling.steps or usual_steps(sampler)
    return [
        {"choices": [(c, c) for c in run.classes], "value": []},
        {"value": scale, "label": name, "interactive": not unscaled(run)},
        {"value": sampler},
        {"value": min(steps, MOST_STEPS)},
    ]


def updater(runs: Mapping[str, Run]) -> Callable[[str], list[Any]]:
    def update(name: str) -> list[Any]:
        return [gr.update(**values) for values in usual(found(runs, name))]

    return update


def usual_steps(sampler: str) -> int:
    row = SAMPLERS.get(sampler)
    return min(row.steps, MOST_STEPS) if row else 1


def drawer(runs: Mapping[str, Run]) -> Callable[..., Iterator[str]]:
    def draw(*values: Any) -> Iterator[str]:
        name, beside, classes, count, scale, sampler, steps, seed = values
        wish = Wish.read(classes, {"count": count, "scale": scale, "steps": steps, "seed": seed}, sampler)
        names = [str(name)] + ([str(beside)] if beside not in (NO_OTHER, name, None) else [])
        yield from drawn({n: found(runs, n) for n in names}, wish)

    return draw


def drawn(runs: Mapping[str, Run], wish: Wish) -> Iterator[str]:
    """The page's piece again and again, one run after the other, beside each other and from the same noise."""
    check_alike(list(runs.values()))
    sides = [Side(name, run, None) for name, run in runs.items()]
    batch = sides[0].run.generator.batch
    for i, side in enumerate(sides):
        for frame in frames(side.run, wish, batch):
            sides[i] = Side(side.name, side.run, frame)
            yield tiles(sides, wish)


def check_alike(runs: Sequence[Run]) -> None:
    for run in runs[1:]:
        if run.shape != runs[0].shape:
            raise SelfcalError(
                f"{run.path} makes images shaped {run.shape}, {runs[0].path} {runs[0].shape}; the same noise fits only "
                "runs of one shape"
            )
        if run.classes != runs[0].classes:
            raise SelfcalError(f"{run.path} and {runs[0].path} have different classes; compare runs of the same ones")
