"""What a user asks for, and what it comes to: everything is checked here, before anything is written."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core import bounds
from selfcal.core.bounds import check_memory, check_name, check_seed
from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.settings import NETWORKS, NetworkSettings, Settings, pairs, presets, resolve
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
from selfcal.training.optimisers import OPTIMISERS

COPIES = 5  # of the weights: themselves, their average, the gradient, Adam's two moments
BATCHES = 3  # of a batch: clean, its noise, and both together


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
    minutes: float | None = None  # for all networks together, instead of a number of steps

    def prepared(self, loaded: Dataset | None = None, recorded: Mapping[str, Any] | None = None) -> Prepared:
        """The data loaded (unless it is already), the labels chosen, the settings resolved, all fitting each other.

        recorded: the config.json of the run that this request may be continuing.
        """
        method, changes = table.find(self.method), dict(pairs(self.settings))
        check_seed(self.seed)
        check_minutes(self.minutes, self.steps, changes)
        pile = self.read() if loaded is None else loaded
        request = replace(self, labels=chosen(pile, self.labels, (recorded or {}).get("labels")), settings=changes)
        data, labels = reveal(pile, request.labels, self.seed)
        settings, preset = None, None
        if recorded is not None and recorded["data"]["shape"] == list(data.shape):
            settings, preset = as_recorded(self, changes, recorded), recorded.get("preset")
        if settings is None:
            preset = self.preset or default_preset(data, score_given="score.network" in changes)
            settings = resolve(preset, changes, self.steps)
        if settings.data.flips and not data.is_image:
            raise SelfcalError(f"data.flips mirrors images; {data.name} holds points")
        check_names(settings)
        stages, shape, classes = method.stages(settings), data.shape, len(data.classes)
        networks = {stage.role: without_memory(stage.build, settings, shape, classes) for stage in stages}
        for stage in stages:
            check_fits(networks[stage.role], stage.settings(settings), shape, stage.role)
        if "classifier" in networks and settings.classifier.start != "scratch":
            start_from_score(networks["classifier"], networks)
        judging = None if self.test_labels is None else judged_by(data, self.test_labels)  # wrong ones are told now
        words = in_words(judging or data, labels, str(request.labels), asked=self.labels is not None)
        return Prepared(request, method, data, labels, settings, tuple(words), preset)

    def how_read(self) -> dict[str, Any]:
        """For config.json, so that later commands read the same; nothing where nothing was asked for."""
        asked: dict[str, Any] = {"size": self.size, "skip_broken": self.skip_broken or None}
        if self.test_labels is not None:
            asked["test_labels"] = check_name(Path(self.test_labels).resolve())
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
    preset: str | None = None  # what the settings started from

    def with_steps(self, steps: Mapping[str, int]) -> Prepared:
        """The same with other numbers of steps, by role."""
        return replace(self, settings=self.settings.with_steps(steps))

    @property
    def asked(self) -> dict[str, Any]:
        """What was said of the settings; the same words find the same run, whatever presets say by then."""
        return asked(self.request, dict(pairs(self.request.settings)), self.settings)

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
            "labels": check_name(Path(text).resolve()) if is_label_file(text) else text,
            "labelled": int((self.labels >= 0).sum()),
            "labels_sha256": hashlib.sha256(self.labels.numpy().tobytes()).hexdigest(),
            "seed": self.request.seed,
            "threads": torch.get_num_threads(),
            "score_from": score_from,
            "preset": self.preset,
            "asked": self.asked,
            "settings": self.settings.model_dump(mode="json"),
        }


def asked(request: Request, changes: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Values as they were understood: "5" on a command line is the 5 of Python."""
    known = settings.dotted()
    words = {"preset": request.preset, "steps": request.steps, "minutes": request.minutes}
    return {**words, "settings": {key: known[key] for key in sorted(changes)}}


def as_recorded(request: Request, changes: Mapping[str, Any], recorded: Mapping[str, Any]) -> Settings | None:
    """The settings of the run there, where the same was asked for; more steps of it may be asked for, too.

    Presets change from version to version, and with the device; a run goes on with what it began with.
    """
    there = Settings.model_validate(recorded["settings"])
    wanted = there.changed(changes if request.steps is None else {**steps_of_all(request.steps), **changes})
    said = recorded.get("asked")
    if said is None:  # a run from before this was noted, when all images were treated alike
        begun = resolve("images", changes, request.steps)
        alike = request.preset is None and len(recorded["data"]["shape"]) == 3
        return begun if alike and without_steps(begun.dotted()) == without_steps(there.dotted()) else None
    mine = asked(request, changes, wanted)
    if mine == said:
        return there
    same = all(without_steps(mine[key]) == without_steps(said[key]) for key in ("preset", "settings"))
    return wanted if same and (request.minutes or request.steps or without_steps(changes) != changes) else None


def steps_of_all(steps: int) -> dict[str, Any]:
    return {f"{role}.steps": steps for role in NETWORKS}


def without_steps(settings: Any) -> Any:
    """All that must not change when a run is made longer; pictures on the way do not change it."""
    if not isinstance(settings, Mapping):
        return settings
    free = {*steps_of_all(0), "run.preview_every"}
    return {key: value for key, value in settings.items() if key not in free}


def check_minutes(minutes: float | None, steps: int | None, changes: Mapping[str, Any]) -> None:
    if minutes is None:
        return
    bounds.check_minutes(minutes)
    if steps is not None:
        raise SelfcalError("--minutes chooses the steps of every network; leave out --steps, or --minutes")
    if said := [key for key in changes if key in steps_of_all(0)]:
        raise SelfcalError(f"--minutes chooses the steps of every network; leave out --set {said[0]}, or --minutes")


def check_names(settings: Settings) -> None:
    """Rows that settings name must be there, whether or not this method asks for them."""
    for role in NETWORKS:
        net = getattr(settings, role)
        look_up(f"{role}.network", net.network, KINDS)
        look_up(f"{role}.form", net.form, FORMS)
        look_up(f"{role}.head", net.head, HEADS)
        look_up(f"{role}.optimiser", net.optimiser, OPTIMISERS)
    look_up("sampling.sampler", settings.sampling.sampler, SAMPLERS)


def check_fits(network: nn.Module, settings: NetworkSettings, shape: tuple[int, ...], role: str) -> None:
    """Weights with all that training keeps of them, and a batch: the least that it takes, before any of it is taken."""
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    pixels = math.prod(shape[1:]) / settings.patch**2 if settings.network == "ncsnpp" else 1.0
    layers = 2 * settings.blocks * settings.width * pixels if settings.network in ("mlp", "ncsnpp") else 0.0
    example = 4 * (BATCHES * math.prod(shape) + layers)
    what = f"training the {role} network ({role}.width = {settings.width}, {role}.batch = {settings.batch})"
    check_memory(COPIES * weights + settings.batch * example, what, "make one of them smaller with --set")


PHOTOS = {
    "cpu": ((12, "images"), (20, "photos16"), (40, "photos32"), (80, "photos64")),
    "cuda": ((12, "images"), (20, "photos16"), (40, "photos32-gpu"), (80, "photos64-gpu"), (160, "photos128-gpu")),
}
"""By device: up to so many pixels, this preset."""


def default_preset(data: Dataset, device: str | None = None, score_given: bool = False) -> str:
    """A bundled data set has a preset of its own, other points are treated as moons; images go by their size.

    score_given: only a guide is trained, for a score model that makes images of this very size.
    """
    for own in (data.name, f"{data.name}-small"):
        if data.published and own in presets():
            return own
    if not data.is_image:
        return "moons"
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    by_size, side = PHOTOS[device], max(data.shape[1:])
    name = next((preset for most, preset in by_size if side <= most), by_size[-1][1] if score_given else None)
    if score_given:
        return name if name and not any(s % resolve(name).classifier.patch for s in data.shape[1:]) else "images"
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
