"""Feature extractors: what turns examples into the vectors that metrics compare.

Every result names its extractor and its hash, since numbers from different ones cannot be compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from selfcal.core.devices import usual_device
from selfcal.core.errors import SelfcalError, unknown
from selfcal.core.progress import bar, say
from selfcal.core.team import ALONE, Team
from selfcal.data.dataset import Dataset
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation import efficientnet, inception, judge, linear_judge
from selfcal.evaluation.cache import keep, kept

BATCH = 500
HOW = "channels-last"  # what else the last bits of cached features depend on
LARGE = 50  # images at a time for networks that enlarge them
LEAST = 10
SMALLEST_PHOTO = 24  # pixels: smaller ones, enlarged, are unlike what a network of photos has seen
LARGEST_FOR_CNN = 32 * 32  # pixels: its training takes about three minutes of two cores at 28×28, and more beyond
ENOUGH = 50  # labels per class for which a judge trained on them is worth believing


@dataclass(frozen=True)
class Features:
    """name and sha256 say which; `embed` (N, *) -> (N, D); `classify` -> (N, K) probabilities, if it can."""

    name: str
    sha256: str
    embed: Callable[[Tensor], Tensor]
    classify: Callable[[Tensor], Tensor] | None = None
    recognise: Callable[[Tensor], Tensor] | None = None  # probabilities of its own classes, for the inception score
    second: Callable[[Tensor], Tensor] | None = None  # as classify, of too few labels to be called a judge
    knows_no_labels: bool = False  # its features tell classes apart without having been told of the data's
    distance: str = "FID"  # what the Fréchet distance of these features is called


def identity(data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Features:
    """The numbers themselves: right for points, weak but honest for images."""
    name = "pixels" if data.is_image else "points"
    return Features(name, hashlib.sha256(name.encode()).hexdigest(), lambda x: x.flatten(1))


def cnn(data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Features:
    """A small CNN trained on all labels; for digits the bundled one."""
    if not data.is_image:
        raise SelfcalError("the cnn features are for images; for points use --features identity")
    if data.fewest_per_class < LEAST:
        raise SelfcalError(
            f"cnn features need {LEAST} known images a class, one has {data.fewest_per_class}; try --features identity"
        )
    if data.published and data.name == "digits" and data.shape == (1, 8, 8):
        net, sha256 = judge.bundled(data.shape[0], len(data.classes), data.shape[1])
        name = "digits-cnn"
    else:
        net, sha256 = team.main_first(lambda: judge.trained_on(data, show_progress))
        name = f"{data.name}-cnn"
    for_reading(net)
    return Features(name, sha256, _batched(net.trunk), _batched(lambda x: net(x).softmax(-1)))


def automatic(data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Features:
    """For photos a network that has seen photos; for other images a cnn, where labels abound and it is trained within
    minutes; otherwise the numbers themselves."""
    if wants_photos(data) and efficientnet.is_installed():
        return efficientnet_lite0(data, show_progress, team)
    if wants_photos(data) and team.is_main:
        say("features of a network that knows photos would measure more: pip install 'selfcal[features]'")
    enough = data.is_image and is_small(data) and data.fewest_per_class >= ENOUGH
    return (cnn if enough else identity)(data, show_progress, team)


def without_true_labels(data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Features:
    """For images whose labels are a guide's: those of photos know no labels, a judge is taught by the guide's."""
    if wants_photos(data) and efficientnet.is_installed():
        embed, sha256 = efficientnet.load()
        return Features("efficientnet-lite0", sha256, remembering(_batched(embed, LARGE)))
    if not data.is_image or not is_small(data):
        return identity(data, show_progress)
    net, sha256 = team.main_first(lambda: judge.trained_on(data, show_progress, judge.STUDENT_STEPS))
    for_reading(net)
    return Features(f"{data.name}-student-cnn", sha256, _batched(net.trunk))


def wants_photos(data: Dataset) -> bool:
    """Photos, and images of which a small network would learn too slowly."""
    if not data.is_image:
        return False
    return not is_small(data) or (data.shape[0] == 3 and min(data.shape[1:]) > SMALLEST_PHOTO)


def is_small(data: Dataset) -> bool:
    return math.prod(data.shape[1:]) <= LARGEST_FOR_CNN


def efficientnet_lite0(data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Features:
    """1280 numbers of a network that has seen ImageNet; its distance is no FID, and not called so."""
    check_images(data, "efficientnet-lite0")
    embed, sha256 = efficientnet.load()
    name = f"efficientnet-lite0 at {efficientnet.SIDE} px"
    return with_linear_judge(
        Features(name, sha256, _batched(embed, LARGE), knows_no_labels=True, distance="FD-EffNetLite0"),
        data,
        show_progress,
        team,
    )


def inception_2015(file: Path, data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Features:
    """The 2048 numbers that the FID of the literature compares."""
    check_images(data, "inception")
    embed, recognise, sha256 = inception.load(file)
    features = Features("inception-2015", sha256, _batched(embed, LARGE), knows_no_labels=True)
    features = replace(features, recognise=_batched(recognise, LARGE))
    return with_linear_judge(features, data, show_progress, team)


def check_images(data: Dataset, name: str) -> None:
    if not data.is_image:
        raise SelfcalError(f"the {name} features are for images; for points use --features identity")


def with_linear_judge(features: Features, data: Dataset, show_progress: bool, team: Team) -> Features:
    """The same features; they also tell the data's classes: as a judge, where enough labels are known to learn them,
    else as a second opinion."""
    embed = remembering(features.embed)
    features = replace(features, embed=embed)
    if len(data.classes) < 2 or data.fewest_per_class < 1:
        return features
    labelled = data.y != UNLABELED
    real = reference(features, data, show_progress, team)
    judge = linear_judge.fit(real[labelled], data.y[labelled], len(data.classes))
    if data.fewest_per_class < LEAST:
        return replace(features, second=lambda x: judge(embed(x)))
    return replace(features, classify=lambda x: judge(embed(x)))


def remembering(embed: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same function; asked about the same tensor twice in a row, it works once."""
    last: list[tuple[Tensor, Tensor]] = []

    def remembered(x: Tensor) -> Tensor:
        if not last or last[0][0] is not x:
            last[:] = [(x, embed(x))]
        return last[0][1]

    return remembered


EXTRACTORS: dict[str, Callable[[Dataset, bool, Team], Features]] = {
    "auto": automatic,
    "cnn": cnn,
    "identity": identity,
    "efficientnet-lite0": efficientnet_lite0,
}


def find(name: str, data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Features:
    """A row of the table, or "inception:FILE" with its weights."""
    if name.startswith("inception:"):
        return inception_2015(Path(name.removeprefix("inception:")), data, show_progress, team)
    if name == "inception":
        raise SelfcalError(f"--features inception needs its weights: --inception-weights FILE, from {inception.PAGE}")
    if name not in EXTRACTORS:
        raise unknown("feature extractor", name, [*EXTRACTORS, "inception"])
    return EXTRACTORS[name](data, show_progress, team)


def reference(judge: Features, data: Dataset, show_progress: bool = False, team: Team = ALONE) -> Tensor:
    """The training images' features, kept in the user's cache under the hashes of both."""
    if judge.name in ("pixels", "points"):  # the numbers themselves need no cache
        return torch.cat([judge.embed(part) for part in data.x.split(BATCH)])

    name = f"features-{judge.sha256[:32]}-{data.sha256[:32]}-{HOW}"
    found = team.from_main(lambda: kept(name))
    if found is None:
        found = {"features": shared_features(judge, data, show_progress, team)}
        if team.is_main:
            keep(name, found)
    return found["features"]


def shared_features(judge: Features, data: Dataset, show_progress: bool, team: Team) -> Tensor:
    """Each process embeds some batches."""
    starts = range(0, len(data.x), BATCH)
    with bar(f"features of {data.name}", -(-len(starts) // team.world), show=show_progress) as tick:

        def part(start: int) -> Tensor:
            found = judge.embed(data.x[start : start + BATCH])
            tick(1, f"batches of {BATCH}")
            return found

        return torch.cat(team.each([partial(part, start) for start in starts]))


def for_reading(net: nn.Module) -> None:
    """Where networks compute, its channels last."""
    net.requires_grad_(False).to(usual_device(), memory_format=torch.channels_last)  # type: ignore[call-overload]


def layout(x: Tensor) -> torch.memory_format:
    """Channels last: these networks read images in two thirds of the time."""
    return torch.channels_last if x.ndim == 4 else torch.preserve_format


def _batched(function: Callable[[Tensor], Tensor], size: int = BATCH) -> Callable[[Tensor], Tensor]:
    """Batch by batch on the device where networks compute, and back."""

    def chunks(x: Tensor) -> Iterator[Tensor]:
        with torch.no_grad():
            for part in x.split(size):
                yield function(part.to(usual_device(), memory_format=layout(part))).cpu()

    return lambda x: torch.cat(list(chunks(x)))
