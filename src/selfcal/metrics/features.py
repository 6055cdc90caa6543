"""Feature extractors: what turns examples into the vectors that metrics compare.

Every result names its extractor and its hash, since numbers from different ones cannot be compared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from selfcal.data import Dataset
from selfcal.errors import SelfcalError, unknown
from selfcal.metrics import judge
from selfcal.metrics.judge import cache_folder
from selfcal.progress import bar

BATCH = 500
LEAST = 10
ENOUGH = 50  # labels per class for which a judge trained on them is worth believing


@dataclass(frozen=True)
class Features:
    """name and sha256 say which; `embed` (N, *) -> (N, D); `classify` -> (N, K) probabilities, if it can."""

    name: str
    sha256: str
    embed: Callable[[Tensor], Tensor]
    classify: Callable[[Tensor], Tensor] | None = None


def identity(data: Dataset, show_progress: bool = False) -> Features:
    """The numbers themselves: right for points, weak but honest for images."""
    name = "pixels" if data.is_image else "points"
    return Features(name, hashlib.sha256(name.encode()).hexdigest(), lambda x: x.flatten(1))


def cnn(data: Dataset, show_progress: bool = False) -> Features:
    """A small CNN trained on all labels; for digits the bundled one."""
    if not data.is_image:
        raise SelfcalError("the cnn features are for images; for points use --features identity")
    if data.fewest_per_class < LEAST:
        raise SelfcalError(
            f"cnn features need {LEAST} known images a class, one has {data.fewest_per_class}; try --features identity"
        )
    if data.name == "digits" and data.shape == (1, 8, 8):
        net, sha256 = judge.bundled(data.shape[0], len(data.classes), data.shape[1])
        name = "digits-cnn"
    else:
        net, sha256 = judge.trained_on(data, show_progress)
        name = f"{data.name}-cnn"
    net.requires_grad_(False)
    return Features(name, sha256, _batched(net.trunk), _batched(lambda x: net(x).softmax(-1)))


def automatic(data: Dataset, show_progress: bool = False) -> Features:
    """cnn where labels abound, otherwise the numbers themselves."""
    chosen = cnn if data.is_image and data.fewest_per_class >= ENOUGH else identity
    return chosen(data, show_progress)


EXTRACTORS: dict[str, Callable[[Dataset, bool], Features]] = {"auto": automatic, "cnn": cnn, "identity": identity}


def find(name: str, data: Dataset, show_progress: bool = False) -> Features:
    if name not in EXTRACTORS:
        raise unknown("feature extractor", name, EXTRACTORS)
    return EXTRACTORS[name](data, show_progress)


def reference(judge: Features, data: Dataset, show_progress: bool = False) -> Tensor:
    """The training images' features, kept in the user's cache under the hashes of both."""
    if judge.classify is None:  # the numbers themselves need no cache
        return judge.embed(data.x)
    file = cache_folder() / f"features-{judge.sha256[:16]}-{data.sha256[:16]}.safetensors"
    if file.exists():
        try:
            return load_file(file)["features"]
        except SafetensorError:
            file.unlink()  # a half-written or foreign file: make it again
    with bar(f"features of {data.name}", len(data.x), show=show_progress) as tick:
        parts = []
        for part in data.x.split(BATCH):
            parts.append(judge.embed(part))
            tick(len(part), "")
    features = torch.cat(parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    save_file({"features": features}, beside)
    beside.rename(file)
    return features


def _batched(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def chunks(x: Tensor) -> Iterator[Tensor]:
        with torch.no_grad():
            for part in x.split(BATCH):
                yield function(part)

    return lambda x: torch.cat(list(chunks(x)))
