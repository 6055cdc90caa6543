"""Options that several commands share, each defined once with its help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from selfcal.core.errors import SelfcalError


def _whole(kind: type, tokens: Sequence[Token]) -> int:
    """Unasked, cyclopts would round 1.7 to 2."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:  # also of more digits than Python reads
        raise ValueError(f"{text[:60]!r} is not a whole number") from None


Whole = Annotated[int, Parameter(converter=_whole)]
"""A count, a number of steps or a seed."""

# --- what is trained --------------------------------------------------------------------------------

KINDS_OF_DATA = (
    "moons, digits, cifar10, cifar100, fashion, mnist, an .npz file (arrays x and y), or a folder of images "
    "(class sub-folders and/or unlabeled/, or a flat pile with labels.csv; test/ is only judged by)."
)
KINDS_OF_LABELS = "a fraction (0.02), a count (4/class), all, or a CSV or TSV with the columns file and label."

Data = Annotated[str, Parameter(help=KINDS_OF_DATA)]
Labels = Annotated[
    str | None,
    Parameter(
        help=f"What may be seen: {KINDS_OF_LABELS} If left out, all labels of your data, 0.02 of a built-in set."
    ),
]
TestLabels = Annotated[
    Path | None, Parameter(help="A CSV or TSV of labels that are only judged by: of images in test/, or in the pile.")
]
RunOut = Annotated[Path, Parameter(help="The run directory to make or continue.")]
Steps = Annotated[
    Whole | None,
    Parameter(
        help="Training steps of each network, instead of the preset's; more than before make a run longer, fewer an "
        "unfinished one shorter."
    ),
]
Minutes = Annotated[
    float | None,
    Parameter(
        help="Time for training all networks, from which their steps are planned at this machine's speed; more than "
        "before make a finished run longer, others than before an unfinished one longer or shorter. Sampling and "
        "evaluation come on top."
    ),
]
Preset = Annotated[str | None, Parameter(help="Settings to start from; by default the one that fits the data.")]
Seed = Annotated[Whole, Parameter(help="Chooses the labelled images, the first weights and all noise.")]
Changes = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative=(),
        help="Any other setting as key=value, for instance --set terms.sc_weight=10; may be repeated.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """How a folder of images is read."""

    size: Annotated[
        Whole | None, Parameter(help="Take the middle square of each image of a folder, at this many pixels a side.")
    ] = None
    skip_broken: Annotated[bool, Parameter(negative=(), help="Do without files that cannot be read.")] = False
    test_labels: TestLabels = None

    def choices(self) -> dict[str, Any]:
        """As `selfcal.train` takes them."""
        return {"size": self.size, "skip_broken": self.skip_broken, "test_labels": self.test_labels}


AS_IT_IS = Reading()
"""Whole images, of which none is broken."""

Track = Annotated[
    str | None,
    Parameter(help="Also send the log to tensorboard, wandb or trackio (several: separated by commas)."),
]

# --- several trainings ------------------------------------------------------------------------------

Vary = Annotated[
    list[str] | None,
    Parameter(
        negative=(),
        help="A setting to try, for instance --vary terms.sc_weight=1,10,100: each value makes a row. May be repeated.",
    ),
]
FirstSeed = Annotated[Whole, Parameter(help="The first seed.")]
Count = Annotated[Whole, Parameter(help="Samples per guidance scale.")]

# --- what is done with a run ------------------------------------------------------------------------

Scales = Annotated[
    str | None,
    Parameter(
        help='Guidance scales separated by commas, "paper" for its grid, or "wide" (to 6) or "far" (to 9): all '
        "are reported, the best is chosen on separate samples. If left out, the wide grid is tried and only the best "
        "reported."
    ),
]
EvaluatedCount = Annotated[
    Whole | None,
    Parameter(
        name="--count",
        help="Samples per λ; if left out, as many as there are training images, at most 5000 and as the minutes allow.",
    ),
]
MinutesAllowed = Annotated[float, Parameter(help="How long it may take, about, where the count is left out.")]
MovedData = Annotated[
    Path | None, Parameter(name="--data", help="Where the run's data lies now, if it moved; checked by its hash.")
]
Anyway = Annotated[
    bool, Parameter(negative=(), help="Go on although the data has changed, with the images as they are now.")
]
FinishedRun = Annotated[Path, Parameter(help="A finished run directory.")]
TrainedRun = Annotated[
    Path, Parameter(help="A run directory; of one that was stopped, the latest checkpoints are used, and marked so.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Sampling:
    """How samples are drawn, by `sample` and by `evaluate`."""

    sampler: Annotated[
        str | None, Parameter(help="pc (the paper's), euler, heun, dpm++2m or dpm++2m-sde (the default).")
    ] = None
    steps: Annotated[Whole | None, Parameter(help="Steps of the sampler, instead of its own number.")] = None
    guide: Annotated[
        str | None,
        Parameter(help="Instead of the method's: unconditional, classifier-only or classifier-only-unconditional."),
    ] = None
    options: Annotated[
        list[str] | None,
        Parameter(
            name="--option",
            negative=(),
            help="An option of the sampler as key=value: snr (pc), churn (heun), eta (dpm++2m-sde).",
        ),
    ] = None

    def choices(self) -> dict[str, Any]:
        """As `Run.sample` and `Run.evaluate` take them."""
        return {"sampler": self.sampler, "steps": self.steps, "guide": self.guide, **numbers(self.options)}


USUAL = Sampling()
"""All that the run itself says."""


# --- values of options ------------------------------------------------------------------------------


def names(text: str) -> list[str]:
    """ "cg, cond" -> ["cg", "cond"]."""
    return [name.strip() for name in text.split(",") if name.strip()]


def number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SelfcalError(f"{where} {text!r} is not a number") from None


def numbers(options: list[str] | None) -> dict[str, float]:
    """["eta=1"] -> {"eta": 1.0}."""
    values = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals:
            raise SelfcalError(f"--option {option!r} is not of the form key=value")
        values[key] = number(value, f"--option {key}")
    return values
