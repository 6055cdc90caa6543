"""Trackers, through Accelerate's: every line of log.jsonl, the settings, and the pictures that a run leaves on the way.

What a tracker misses is never missing in the run: it is told after log.jsonl, and a tracker that fails is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import tracking, utils
from PIL import Image

from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.progress import say
from selfcal.core.settings import pairs
from selfcal.training.directory import RunDirectory

TRACKERS: dict[str, Callable[[], bool]] = {
    "tensorboard": utils.is_tensorboard_available,
    "wandb": utils.is_wandb_available,
    "trackio": utils.is_trackio_available,
}
"""By name: whether it is installed."""
PROJECT = "selfcal"


def named(track: str | Iterable[str] | None) -> tuple[str, ...]:
    """ "tensorboard,wandb" -> both, if they are known and installed."""
    given = [] if track is None else track.split(",") if isinstance(track, str) else list(track)
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    for name in names:
        if not look_up("tracker", name, TRACKERS)():
            raise SelfcalError(f"--track {name}: it is not installed; install it with: pip install 'selfcal[{name}]'")
    return names


class Tracking:
    """The trackers of a run: an `on_step` that tells them."""

    def __init__(self, names: Sequence[str], run: RunDirectory) -> None:
        self.run, self.pictures = run, set[Path]()
        self.trackers = [self._start(name) for name in names]
        totals = {stage.name: stage.settings(run.settings).steps for stage in run.stages}
        before = np.cumsum([0, *totals.values()]).tolist()
        self.before = dict(zip(totals, before, strict=False))  # one axis for all networks: some trackers know no other

    def _start(self, name: str) -> Any:
        kind: Any = tracking.LOGGER_TYPE_TO_CLASS[name]
        tracker = kind(self.run.path.name, self.run.path / "tracking") if name == "tensorboard" else kind(PROJECT)
        tracker.start()
        config = self.run.config
        about = {"method": config["method"], "data": config["data"]["name"], "labels": config["labels"]}
        tracker.store_init_configuration(about | {"seed": config["seed"]} | flat(config["settings"]))
        return tracker

    def __call__(self, network: str, step: int, values: Mapping[str, Any]) -> None:
        at = self.before.get(network, 0) + step
        numbers = {f"{network}/{name}": value for name, value in values.items() if isinstance(value, int | float)}
        self._tell(lambda tracker: tracker.log(numbers, step=at))
        for file in sorted(self.run.path.glob("samples/preview-*.png")):
            if file not in self.pictures:
                self.pictures.add(file)
                self._show(file, at)

    def _show(self, file: Path, step: int) -> None:
        images = {file.stem.rpartition("-")[0]: np.asarray(Image.open(file).convert("RGB"))[None]}
        self._tell(lambda tracker: tracker.log_images(images, step=step) if hasattr(tracker, "log_images") else None)

    def _tell(self, act: Callable[[Any], Any]) -> None:
        for tracker in list(self.trackers):
            try:
                act(tracker)
            except Exception as error:  # of somebody's network or disk: the training goes on without it
                self.trackers.remove(tracker)
                say(f"{type(tracker).__name__} failed and is left out: {error}")

    def finish(self) -> None:
        self._tell(lambda tracker: tracker.finish())


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names and plain values, which is what trackers compare by."""
    found = {f"{section}.{name}": value for section, values in settings.items() for name, value in pairs(values)}
    return {name: v if isinstance(v, int | float | str | bool) else str(v)[:250] for name, v in found.items()}
