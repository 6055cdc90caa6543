"""What a user asks for, and what it comes to: everything is checked here, before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.settings import NETWORKS, Settings, presets, resolve
from selfcal.core.version import __version__
from selfcal.data.dataset import Dataset
from selfcal.data.label_files import is_label_file
from selfcal.data.labels import chosen, judged_by, reveal
from selfcal.data.memory import KEPT, from_memory, in_memory
from selfcal.data.sources import load_data, recorded
from selfcal.data.summary import in_words
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.methods import table
from selfcal.methods.stage import Method
from selfcal.nets.builders import without_memory
from selfcal.nets.classifier import HEADS
from selfcal.nets.recipes import FORMS, KINDS
from selfcal.training.beginning import start_from_score


@dataclass(frozen=True)
class Request:
    """The words of `selfcal train`."""

    data: Any  # a name, a path, or what data/memory.py takes
    method: str = "cg-sc-all"
    labels: str | float | None = None  # all that the user made, and few of a published set
    seed: int = 0
    steps: int | None = None  # of every network, instead of the preset's
    preset: str | None = None  # the one that fits the data, if left out
    settings: Mapping[str, Any] | Iterable[str] = ()
    size: int | None = None  # of images in a folder, cut and resized to it
    skip_broken: bool = False
    test_labels: str | Path | None = None  # a table of labels that only judge

    def prepared(self, loaded: Dataset | None = None) -> Prepared:
        """The data loaded (unless it is already), the labels chosen, the settings resolved, all fitting each other."""
        method = table.find(self.method)
        pile = self.read() if loaded is None else loaded
        request = replace(self, labels=chosen(pile, self.labels))
        data, labels = reveal(pile, request.labels, self.seed)
        settings = resolve(self.preset or default_preset(data), self.settings, self.steps)
        if settings.data.flips and not data.is_image:
            raise SelfcalError(f"data.flips mirrors images; {data.name} holds points")
        check_names(settings)
        stages, shape, classes = method.stages(settings), data.shape, len(data.classes)
        networks = {stage.role: without_memory(stage.build, settings, shape, classes) for stage in stages}
        if "classifier" in networks and settings.classifier.start != "scratch":
            start_from_score(networks["classifier"], networks)
        judging = None if self.test_labels is None else judged_by(data, self.test_labels)  # wrong ones are told now
        words = in_words(judging or data, labels, str(request.labels), asked=self.labels is not None)
        return Prepared(request, method, data, labels, settings, tuple(words))

    def how_read(self) -> dict[str, Any]:
        """For config.json, so that later commands read the same; nothing where nothing was asked for."""
        asked: dict[str, Any] = {"size": self.size, "skip_broken": self.skip_broken or None}
        if self.test_labels is not None:
            asked["test_labels"] = str(Path(self.test_labels).resolve())
        return {name: value for name, value in asked.items() if value is not None}

    def read(self) -> Dataset:
        if not in_memory(self.data):
            return load_data(self.data, self.size, self.skip_broken)
        if self.size is not None:
            raise SelfcalError(f"--size {self.size} is for a folder of images; arrays are taken as they are")
        return from_memory(self.data)


@dataclass(frozen=True)
class Prepared:
    """A request that can be carried out."""

    request: Request
    method: Method
    data: Dataset
    labels: Tensor  # (N,), UNLABELED where hidden
    settings: Settings
    summary: tuple[str, ...] = ()  # of what was read, for whoever waits

    def config(self, score_from: str | None = None) -> dict[str, Any]:
        """config.json: everything resolved, enough to make the run again."""
        text, data = str(self.request.labels), self.data
        return {
            "selfcal": __version__,
            "method": self.method.name,
            "data": {
                "source": KEPT if in_memory(self.request.data) else recorded(self.request.data),
                "name": data.name,
                "sha256": data.sha256,
                "shape": list(data.shape),
                "classes": list(data.classes),
                "examples": len(data.x),
                "test": len(data.x_test),
                **self.request.how_read(),
            },
            "labels": str(Path(text).resolve()) if is_label_file(text) else text,
            "labelled": int((self.labels >= 0).sum()),
            "labels_sha256": hashlib.sha256(self.labels.numpy().tobytes()).hexdigest(),
            "seed": self.request.seed,
            "score_from": score_from,
            "settings": self.settings.model_dump(mode="json"),
        }


def check_names(settings: Settings) -> None:
    """Rows that settings name must be there, whether or not this method asks for them."""
    for role in NETWORKS:
        net = getattr(settings, role)
        look_up(f"{role}.network", net.network, KINDS)
        look_up(f"{role}.form", net.form, FORMS)
        look_up(f"{role}.head", net.head, HEADS)
    look_up("sampling.sampler", settings.sampling.sampler, SAMPLERS)


PHOTOS = {
    "cpu": ((12, "images"), (20, "photos16"), (40, "photos32"), (80, "photos64")),
    "cuda": ((12, "images"), (20, "photos16"), (40, "photos32-gpu"), (80, "photos64-gpu"), (160, "photos128-gpu")),
}
"""By device: up to so many pixels, this preset."""


def default_preset(data: Dataset, device: str | None = None) -> str:
    """A bundled data set has a preset of its own, other points are treated as moons; images go by their size."""
    for own in (data.name, f"{data.name}-small"):
        if data.published and own in presets():
            return own
    if not data.is_image:
        return "moons"
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    by_size, side = PHOTOS[device], max(data.shape[1:])
    name = next((preset for most, preset in by_size if side <= most), None)
    if name is None:
        raise SelfcalError(
            f"{data.name} holds images of {pixels(data)} pixels; the largest that a network here learns on "
            f"{'a GPU' if device == 'cuda' else 'a CPU'} in reasonable time have {by_size[-1][0]}. Let them be made "
            f"smaller with --size {by_size[-1][0] // 5 * 4}, or choose a network yourself with --preset and --set "
            "(`selfcal presets`, `selfcal settings`)"
        )
    check_divides(data, name)
    return name


def check_divides(data: Dataset, preset: str) -> None:
    """A U-Net halves images: their sides must allow it, or be made to."""
    net = resolve(preset).score
    unit = net.patch * 2 ** (len(net.multipliers) - 1) if net.network == "ncsnpp" else 1
    if any(side % unit for side in data.shape[1:]):
        nearest = max(unit, round(min(data.shape[1:]) / unit) * unit)
        raise SelfcalError(
            f"{data.name} holds images of {pixels(data)} pixels; the network for them ({preset}) needs sides that are "
            f"multiples of {unit}. Let them be made so with --size {nearest}"
        )


def pixels(data: Dataset) -> str:
    """As people say it: width × height."""
    return f"{data.shape[2]}×{data.shape[1]}"
