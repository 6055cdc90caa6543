"""Images and words as pieces of the page; every name in them is escaped by the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from torch import Tensor

from selfcal.app import asking
from selfcal.app.drawing import Frame, Wish, unscaled
from selfcal.app.labelling import Labelling
from selfcal.diffusion.pictures import pixels, png
from selfcal.diffusion.sample_files import as_image
from selfcal.report.page import render
from selfcal.report.pictures import data_uri
from selfcal.run import Run

TEMPLATES = Path(__file__).parent / "templates"
SMALLEST, LARGEST = 44, 128  # pixels to which an image is scaled on the screen
SHOWN = 60  # labelled images on the page, the last ones


@dataclass(frozen=True)
class Side:
    """One run of the page and how far its images are."""

    name: str
    run: Run
    frame: Frame | None


def sources(x: Tensor) -> list[str]:
    """(N, C, H, W) in [−1, 1] as pictures within the page: no file is served for them."""
    return [data_uri(png(as_image(image), optimize=False)) for image in pixels(x.numpy())]


def tiles(sides: Sequence[Side], wish: Wish) -> str:
    """All images by class, the runs beside each other."""
    width = max(SMALLEST, min(LARGEST, sides[0].run.shape[-1]))
    return render(TEMPLATES / "tiles.html", tile=width, sides=[side_of(side, wish) for side in sides])


def side_of(side: Side, wish: Wish) -> dict[str, Any]:
    run, frame = side.run, side.frame
    labelled = f"{run.method.name}, {run.config['labelled']} labels"
    if frame is None:
        return {"name": side.name, "words": f"{labelled}: waiting", "state": "waiting", "groups": [], "command": ""}
    images, y = sources(frame.x), frame.y.tolist()
    groups: dict[int, list[str]] = {}
    for source, c in zip(images, y, strict=True):
        groups.setdefault(c, []).append(source)
    scale = "" if unscaled(run) else f"λ = {wish.scale:g}, "
    how = f"{labelled}; {scale}{wish.sampler}, evaluation {frame.done} of {frame.of}, seed {wish.seed}"
    return {
        "name": side.name,
        "words": how,
        "state": "finished" if frame.finished else "drawing",
        "groups": [{"name": run.classes[c], "images": group} for c, group in groups.items()],
        "command": wish.command(run) if frame.finished else "",
    }


def opinion(run: Run, x: Tensor) -> str:
    """The guide's opinion of one image (1, *): in a sentence, in numbers, and over σ."""
    sigmas, p = asking.over_noise(run, x)
    return render(
        TEMPLATES / "opinion.html",
        source=sources(x)[0],
        words=asking.sentence(run, x),
        ranked=asking.ranked(run, x),
        curve=Markup(asking.curve(sigmas, p, run.classes)),  # matplotlib escapes the names in it
        draws=asking.DRAWS,
    )


def card(run: Run, labelling: Labelling) -> str:
    """The image that is to be labelled, or what to do where there is none."""
    top = labelling.card
    if top is None:
        return render(TEMPLATES / "card.html", source="", words=what_next(labelling))
    return render(
        TEMPLATES / "card.html",
        source=sources(top.x)[0],
        number=labelling.at + 1,
        of=len(labelling.cards),
        file=top.file if top.place is None else run.data.names[top.place],
        words=asking.sentence(run, top.x),
        label=None if top.label is None else run.classes[top.label],
    )


def what_next(labelling: Labelling) -> str:
    if not labelling.cards:
        return "Ask for suggestions first."
    return "All of these are done: " + ("save them, or ask for more." if labelling.unsaved else "ask for more.")


def given(run: Run, labelling: Labelling, said: str = "") -> str:
    """What has been labelled, and what was said of the last save: a sentence, and a command below it."""
    cards = labelling.given
    shown = [{"source": sources(c.x)[0], "label": run.classes[c.label or 0]} for c in cards[-SHOWN:]]
    sentence, _, command = said.partition("\n")
    counts = {"count": len(cards), "unsaved": labelling.unsaved}
    return render(TEMPLATES / "given.html", given=shown, **counts, said=sentence, command=command)
