"""Label more: the images that tell the guide most, or one's own, labelled by click and saved as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

from selfcal.app.ask_tab import dropzone, taken
from selfcal.app.draw_tab import FEW_CLASSES
from selfcal.app.events import ONE_AT_A_TIME, spoken
from selfcal.app.labelling import Labelling
from selfcal.app.pictures import card, given
from selfcal.app.runs import found, needed_guide
from selfcal.run import Run

Stacks = dict[str, Labelling]
"""A person's cards, by run."""
COUNTS = (5, 10, 20, 50, 100)
HINT = "<p class='sc-note'>The images whose labels would tell the guide most, one after the other.</p>"
Act = Callable[[Run, Labelling, Any], tuple[Labelling, str]]
"""From a run, its stack and what was clicked: the stack then, and words about it."""


def lay_out(runs: Mapping[str, Run], chosen: gr.Dropdown) -> None:
    first = next(iter(runs.values()))
    stacks = gr.State({})
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            count = gr.Radio(list(COUNTS), value=20, label="How many", elem_id="suggest-count")
            ask = gr.Button("Suggest images", variant="primary", elem_id="suggest")
            with gr.Accordion("Or one of your own", open=False):
                file = dropzone("Your image", "label-file")
        with gr.Column(scale=3, min_width=300):
            top = gr.HTML(HINT, elem_id="card")
            classes = class_buttons(runs, first)
            with gr.Row():
                back = gr.Button("Back", elem_id="back", min_width=80)
                skip = gr.Button("Skip", elem_id="skip", min_width=80)
                save = gr.Button("Save labels", elem_id="save", min_width=80)
            done = gr.HTML("", elem_id="given")
    shown = [stacks, top, classes, done]
    nothing = gr.State(None)
    ask.click(acting(runs, suggested), [chosen, stacks, count], shown, **ONE_AT_A_TIME)
    file.upload(acting(runs, dropped), [chosen, stacks, file], shown, **ONE_AT_A_TIME).then(
        lambda: None, None, file, **ONE_AT_A_TIME
    )
    quick = {"show_progress": "hidden"} | ONE_AT_A_TIME
    classes.input(acting(runs, labelled), [chosen, stacks, classes], shown, **quick)  # type: ignore[attr-defined]
    back.click(acting(runs, lambda run, stack, _: (stack.back(), "")), [chosen, stacks, nothing], shown, **quick)
    skip.click(acting(runs, lambda run, stack, _: (stack.skipped(), "")), [chosen, stacks, nothing], shown, **quick)
    save.click(acting(runs, lambda run, stack, _: stack.save(run)), [chosen, stacks, nothing], shown, **quick)
    chosen.change(acting(runs, lambda run, stack, _: (stack, "")), [chosen, stacks, nothing], shown, **ONE_AT_A_TIME)


def class_buttons(runs: Mapping[str, Run], first: Run) -> Component:
    few = max(len(run.classes) for run in runs.values()) <= FEW_CLASSES
    kind: Callable[..., Component] = gr.Radio if few else gr.Dropdown
    return kind(list(first.classes), value=None, label="Its class", elem_id="its-class", elem_classes="sc-classes")


def acting(runs: Mapping[str, Run], act: Act) -> Callable[..., Any]:
    """The event of an act: afterwards the stack, the card on top, the classes with none chosen, what was given."""

    def event(name: str, stacks: Stacks, value: Any) -> list[Any]:
        run = found(runs, name)
        stack, said = act(run, stacks.get(name, Labelling()), value)
        choices = gr.update(choices=[(c, c) for c in run.classes], value=None)
        return [stacks | {name: stack}, card(run, stack), choices, given(run, stack, said)]

    return spoken(event)


def suggested(run: Run, stack: Labelling, count: Any) -> tuple[Labelling, str]:
    return stack.with_suggestions(run, int(count or 1)), ""


def dropped(run: Run, stack: Labelling, file: Any) -> tuple[Labelling, str]:
    return stack.with_image(needed_guide(run), taken(run, file)), ""


def labelled(run: Run, stack: Labelling, name: Any) -> tuple[Labelling, str]:
    return (stack, "") if name is None else (stack.labelled(run, str(name)), "")
