"""Trackers, through Accelerate's: every line of log.jsonl, the settings, and the pictures that a run leaves on the way.

What a tracker misses is never missing in the run: it is told after log.jsonl, and a tracker that fails is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import tracking, utils
from PIL import Image

from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.files import make_folder
from selfcal.core.progress import say
from selfcal.core.settings import pairs
from selfcal.training.directory import RunDirectory

PROJECT, FOLDER = "selfcal", "tracking"


@dataclass(frozen=True)
class Kind:
    """Whether a tracker is installed, with what one is made for a run, and how it takes a picture (H, W, 3)."""

    installed: Callable[[], bool]
    made_with: Callable[[RunDirectory], dict[str, Any]]
    show: Callable[[Any, str, np.ndarray, int], None]


def in_a_batch(tracker: Any, name: str, picture: np.ndarray, step: int) -> None:
    tracker.log_images({name: picture[None]}, step=step, dataformats="NHWC")


def in_a_list(tracker: Any, name: str, picture: np.ndarray, step: int) -> None:
    tracker.log_images({name: [picture]}, step=step)


def as_a_value(tracker: Any, name: str, picture: np.ndarray, step: int) -> None:
    """Accelerate's tracker has no pictures; trackio itself has."""
    from trackio import Image as Picture

    tracker.log({name: Picture(picture)}, step=step)


TRACKERS = {
    "tensorboard": Kind(
        utils.is_tensorboard_available,
        lambda run: {"run_name": run.path.name, "logging_dir": folder_of(run)},
        in_a_batch,
    ),
    "wandb": Kind(
        utils.is_wandb_available,
        lambda run: {"run_name": PROJECT, "name": run.path.name, "dir": str(folder_of(run))},
        in_a_list,
    ),
    "trackio": Kind(
        utils.is_trackio_available,
        lambda run: {"run_name": PROJECT, "name": run.path.name},
        as_a_value,
    ),
}


def folder_of(run: RunDirectory) -> Path:
    """Made, since wandb leaves one that is not there for another."""
    return make_folder(run.path.resolve() / FOLDER, within=run.path)


def named(track: str | Iterable[str] | None) -> tuple[str, ...]:
    """ "tensorboard,wandb" -> both, if they are known and installed."""
    given = [] if track is None else track.split(",") if isinstance(track, str) else list(track)
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    for name in names:
        if not look_up("tracker", name, TRACKERS).installed():
            raise SelfcalError(f"--track {name}: it is not installed; install it with: pip install 'selfcal[{name}]'")
    return names


class Tracking:
    """The trackers of a run: an `on_step` that tells them."""

    def __init__(self, names: Sequence[str], run: RunDirectory) -> None:
        self.run, self.pictures, self.at = run, set[Path](), 0
        self.trackers = {name: started(name, run) for name in names}
        totals = {stage.name: stage.settings(run.settings).steps for stage in run.stages}
        before = np.cumsum([0, *totals.values()]).tolist()
        self.before = dict(zip(totals, before, strict=False))  # one axis for all networks: some trackers know no other

    def __call__(self, network: str, step: int, values: Mapping[str, Any]) -> None:
        self.at = self.before.get(network, 0) + step
        numbers = {f"{network}/{name}": value for name, value in values.items() if isinstance(value, int | float)}
        self._tell(lambda _, tracker: tracker.log(numbers, step=self.at))
        self._show_new_pictures()

    def _show_new_pictures(self) -> None:
        for file in sorted({*self.run.path.glob("samples/preview-*.png")} - self.pictures):
            self.pictures.add(file)
            picture = np.asarray(Image.open(file).convert("RGB"))
            name = file.stem.rpartition("-")[0]
            self._tell(partial(show, name=name, picture=picture, step=self.at))

    def _tell(self, act: Callable[[Kind, Any], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                act(TRACKERS[name], tracker)
            except Exception as error:  # of somebody's network or disk: the training goes on without it
                del self.trackers[name]
                say(f"--track {name} failed and is left out: {first_line(error)}")

    def finish(self) -> None:
        self._show_new_pictures()  # the last ones are drawn after the last line of the log
        self._tell(lambda _, tracker: tracker.finish())


def show(kind: Kind, tracker: Any, name: str, picture: np.ndarray, step: int) -> None:
    kind.show(tracker, name, picture, step)


def started(name: str, run: RunDirectory) -> Any:
    """Told of the settings. One that cannot begin is refused, before hours are spent that it was to follow."""
    config = run.config
    about = {"method": config["method"], "data": config["data"]["name"], "labels": config["labels"]}
    try:
        kind: Any = tracking.LOGGER_TYPE_TO_CLASS[name]
        tracker = kind(**TRACKERS[name].made_with(run))
        tracker.start()
        tracker.store_init_configuration(about | {"seed": config["seed"]} | flat(config["settings"]))
    except Exception as error:  # of an account, a network, a version
        raise SelfcalError(
            f"--track {name} cannot begin: {first_line(error)}; nothing is trained yet, and without it the same "
            "command goes on"
        ) from None
    return tracker


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names and plain values, which is what trackers compare by."""
    found = {f"{section}.{name}": value for section, values in settings.items() for name, value in pairs(values)}
    return {name: v if isinstance(v, int | float | str | bool) else str(v)[:250] for name, v in found.items()}
