"""The guide's opinion of an image that somebody brings along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from selfcal.app.runs import needed_guide
from selfcal.core.errors import SelfcalError
from selfcal.core.escapes import figure as in_figure
from selfcal.data.images import Unreadable, header, pixels
from selfcal.data.pixels import PART, Examples
from selfcal.diffusion.inputs import as_examples
from selfcal.evaluation.opinion import opinions
from selfcal.report.figures import OTHERS, panel, svg
from selfcal.run import Run

LARGEST_UPLOAD = 10 * 2**20  # bytes
LEVELS, DRAWS = 13, 8  # noise levels of the curve, and noises of each
NAMED = 5  # classes with a line of their own


def uploaded(file: str | Path, run: Run) -> Tensor:
    """An image file as the run's networks see one, (1, C, H, W): its middle square at their size, grey or in colour."""
    path, (channels, height, width) = Path(file), run.shape
    try:
        size = path.stat().st_size
        if size > LARGEST_UPLOAD:
            raise SelfcalError(f"the file holds {size / 2**20:.1f} MiB; at most {LARGEST_UPLOAD >> 20} are taken")
        about = header(path)
        if height != width and (about.height, about.width) != (height, width):
            raise SelfcalError(
                f"the image has {about.width}×{about.height} pixels; this run's have {width}×{height}, which is no "
                "square, so that it cannot be cut to that size"
            )
        values = pixels(path, channels == 1, height if height == width else None)
    except Unreadable as problem:
        raise SelfcalError(f"the file is not an image that can be read: {problem}") from None
    except OSError:
        raise SelfcalError("the file is not there any more; choose it again") from None
    return as_examples(np.array(values), run.shape)  # a copy: Pillow's is read-only


def over_noise(run: Run, x: Tensor) -> tuple[list[float], Tensor]:
    """σ from σ_min to σ_max, and the guide's opinion at each, (S, K)."""
    sigmas = needed_guide(run).noise.geometric(LEVELS)[:-1].flip(0).tolist()
    return sigmas, opinions(run.generator, x, sigmas, DRAWS)[:, 0]


def ranked(run: Run, x: Tensor, most: int = NAMED) -> list[tuple[str, float]]:
    """The likeliest classes of one image without noise, by name, with their probabilities."""
    p = needed_guide(run).predict_proba(x, run.noise.sigma_min)[
        0
    ]  # which stands for none; bright images are no mistake
    order = p.argsort(descending=True, stable=True)[:most].tolist()
    return [(run.classes[c], float(p[c])) for c in order]


def curve(sigmas: Sequence[float], p: Tensor, classes: Sequence[str]) -> str:
    """Probabilities against σ as an inline picture: a colour for those that are likely anywhere, grey for the rest."""
    figure, (axes,) = panel()
    order = p.amax(0).argsort(descending=True, stable=True).tolist()
    for place, c in enumerate(order):
        named = place < NAMED
        style = (
            {"color": OTHERS[place % len(OTHERS)], "label": in_figure(classes[c][:24])}
            if named
            else {"color": "#c8ccd2"}
        )
        axes.semilogx(sigmas, p[:, c].tolist(), "o-" if named else "-", ms=3, zorder=2 + named, **style)
    axes.set_xlabel("noise σ")
    axes.set_ylabel("probability")
    axes.set_ylim(-0.02, 1.02)
    axes.legend(frameon=False, fontsize="small")
    return svg(figure)


def sentence(run: Run, x: Tensor) -> str:
    """ "3 (92 %), then 8 (5 %)"."""
    best, *others = ranked(run, x, 3)
    rest = ", ".join(f"{name} ({p:.0%})" for name, p in others if p >= 0.01)
    return f"{best[0]} ({best[1]:.0%})" + (f", then {rest}" if rest else "")


def same_image(x: Tensor, pile: Examples) -> int | None:
    """Where in the pile (N, *) this very image (1, *) is, if it is: its pixels to less than a grey level."""
    start = 0
    for part in pile.split(PART):
        near = ((part - x).abs().flatten(1).amax(1) <= 1.5 / 255).nonzero()[:, 0]
        if len(near):
            return start + int(near[0])
        start += len(part)
    return None
