"""Ask the guide: an image is dropped in, and its probabilities are shown over σ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gradio as gr
from torch import Tensor

from selfcal.app.asking import LARGEST_UPLOAD, uploaded
from selfcal.app.events import ONE_AT_A_TIME, spoken
from selfcal.app.pictures import opinion
from selfcal.app.runs import found, needed_guide
from selfcal.core.errors import SelfcalError
from selfcal.data.images import ENDINGS
from selfcal.run import Run

HINT = "<p class='sc-note'>Drop an image in: its middle square is shown to the guide at the size it knows.</p>"


def lay_out(runs: Mapping[str, Run], chosen: gr.Dropdown) -> None:
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            file = dropzone("Your image", "ask-file")
            swapped = gr.Checkbox(label="Swap black and white", elem_id="swap")
        with gr.Column(scale=3, min_width=300):
            shown = gr.HTML(HINT, elem_id="opinion")
    image = gr.State(None)
    file.upload(spoken(reader(runs)), [chosen, file], [image, file], **ONE_AT_A_TIME).success(
        spoken(asker(runs)), [chosen, image, swapped], shown, **ONE_AT_A_TIME
    )
    again = spoken(asker(runs))
    swapped.input(again, [chosen, image, swapped], shown, **ONE_AT_A_TIME)
    chosen.change(again, [chosen, image, swapped], shown, **ONE_AT_A_TIME)


def dropzone(label: str, name: str) -> gr.File:
    limit = f"{label} (up to {LARGEST_UPLOAD >> 20} MiB)"
    return gr.File(label=limit, file_types=sorted(ENDINGS), type="filepath", height=140, elem_id=name)


def reader(runs: Mapping[str, Run]) -> Callable[[str, Any], tuple[Tensor, None]]:
    def read(name: str, file: Any) -> tuple[Tensor, None]:
        return taken(found(runs, name), file), None

    return read


def taken(run: Run, file: Any) -> Tensor:
    """The image of an uploaded file, which is not kept."""
    if not file:
        raise SelfcalError("no file has arrived; choose it again")
    try:
        return uploaded(str(file), run)
    finally:
        Path(str(file)).unlink(missing_ok=True)


def asker(runs: Mapping[str, Run]) -> Callable[..., str]:
    def ask(name: str, image: Tensor | None, swapped: bool) -> str:
        run = needed_guide(found(runs, name))
        if image is None:
            return HINT
        if tuple(image.shape[1:]) != run.shape:
            raise SelfcalError(f"{run.path} knows images of another size; drop the image in again")
        return opinion(run, -image if swapped else image)  # in [−1, 1] black and white change places by their sign

    return ask
