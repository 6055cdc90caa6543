"""A run directory: what was asked (config.json), what was learned (checkpoints), what came of it.

RUN/config.json  RUN/log.jsonl  RUN/checkpoints/  RUN/metrics.json  RUN/samples/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.devices import usual_device
from selfcal.core.errors import SelfcalError
from selfcal.core.files import check_inside, make_folder, surfaced, write_json
from selfcal.core.settings import NETWORKS, Settings
from selfcal.data.dataset import Dataset
from selfcal.data.labels import judged_by, reveal
from selfcal.data.memory import KEPT
from selfcal.data.pool import Pool
from selfcal.data.sources import load_data, spelled
from selfcal.diffusion.noise import Noise
from selfcal.methods import table
from selfcal.methods.stage import Method, Stage
from selfcal.training import checkpoints, examples, records
from selfcal.training.description import MARK, config_of, describe, journal_of, stages_of
from selfcal.training.journal import Journal
from selfcal.training.lock import check_claim, differences, is_owned, sole_owner
from selfcal.training.own_model import own_model

MAY_DIFFER = {"selfcal", "data.source", "labels"}  # versions and paths; the hashes beside them must agree
MAY_DIFFER |= {"data.size", "data.skip_broken"}  # how the same pixels were read
MAY_DIFFER |= {"data.test"}  # nothing is trained on test images
MAY_DIFFER |= {"settings.score.adopted.probe"}  # numbers that a network gave, on whatever machine
MAY_DIFFER |= {"threads"}  # it goes on with those that are recorded
MAY_DIFFER |= {"settings.run.preview_every"}  # pictures change nothing
NOTES = ("preset", "asked", "pace", "lengthened", "replanned")  # how the settings came about


@dataclass(frozen=True)
class Access:
    """How the data is reached: where it lies now, if it moved; and whether data that has changed will do."""

    source: str | None = None
    anyway: bool = False


@dataclass(frozen=True)
class RunDirectory:
    """A folder and what its config.json says: everything that is known of a run without sampling from it."""

    path: Path
    config: dict[str, Any]
    own: Callable[..., Any] | None = None  # the user's module, in a run that adopted one
    access: Access = Access()

    @property
    def method(self) -> Method:
        return table.find(self.config["method"])

    @cached_property
    def settings(self) -> Settings:
        return Settings.model_validate(self.config["settings"])

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.method.stages(self.settings)

    @property
    def noise(self) -> Noise:
        return Noise(self.settings.noise.sigma_min, self.settings.noise.sigma_max)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.config["data"]["classes"])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.config["data"]["shape"])

    @property
    def device(self) -> torch.device:
        return usual_device()

    def checkpoints(self, stage: str) -> Path:
        return checkpoints.folder_of(self.path, stage)

    @property
    def journal(self) -> Journal:
        return journal_of(self.path, self.stages)

    @cached_property
    def _data(self) -> tuple[Dataset, Tensor]:
        """The examples it was trained on and the labels it was shown, verified; or anyway those that are there now."""
        about = self.config["data"]
        here = str(self.path / KEPT) if about["source"] == KEPT else spelled(about["source"])
        found = load_data(self.access.source or here, about.get("size"), bool(about.get("skip_broken")))
        try:
            data, labels = reveal(found, self.config["labels"], self.config["seed"])
        except SelfcalError:  # labels that no longer fit: what has changed is said below
            data, labels = found, None
        if labels is None or data.sha256 != about["sha256"]:
            known = records.read_if_there(self.path / examples.FILE, records.Examples)
            change = examples.Change(data, None if known is None else examples.Examples.read(known), self.config)
            where = self.access.source or about["source"]
            said = f"{where} has changed since {self.path} was trained on it"
            data, labels = change.settled(said, self.access.anyway)
        return judged_by(data, about["test_labels"]) if about.get("test_labels") else data, labels

    def remember_examples(self, data: Dataset, labels: Tensor) -> None:
        """One by one, unless they are a built-in data set's, which do not change, or too many."""
        if data.published or self.config["data"]["source"] == KEPT or len(data.x) > examples.MOST:
            return
        if not (self.path / examples.FILE).exists():
            self.write(examples.FILE, examples.Examples.of(data, labels).in_json())

    @property
    def data(self) -> Dataset:
        return self._data[0]

    @property
    def pool(self) -> Pool:
        return Pool(self._data[1])

    @property
    def diverged(self) -> dict[str, Any] | None:
        """Where a loss left the finite numbers, if one did: {"network", "step", "losses"}."""
        return records.diverged(self.path)

    @property
    def pseudo_labels(self) -> dict[str, Any] | None:
        """How many labels the classifier gave and how many are right, by stage."""
        return records.pseudo_labels(self.path)

    @property
    def metrics(self) -> dict[str, Any] | None:
        """What `selfcal evaluate` found, the newest first; None before."""
        return records.metrics(self.path)

    def write(self, name: str, value: Any) -> None:
        """One of its JSON files."""
        with surfaced(f"cannot write {self.path / name}"):
            write_json(self.path / name, value)

    @property
    def unfinished(self) -> dict[str, tuple[int, int]]:
        """By network (step, steps) of those that are not at their last step; the first is where training goes on."""
        found = {}
        for stage in self.stages:
            step, steps = self.step_of(stage), stage.settings(self.settings).steps
            if step < steps:
                found[stage.name] = step, steps
        return found

    def step_of(self, stage: Stage) -> int:
        """Of its newest checkpoint; 0 where there is none."""
        return max(checkpoints.steps_saved(self.checkpoints(stage.name)), default=0)

    @cached_property
    def networks(self) -> dict[str, nn.Module]:
        """The networks by role, with averaged weights; of several stages with one role, the last that has begun.

        Also of a run that is not finished, which says so: `unfinished`.
        """
        if self.diverged:
            raise SelfcalError(f"{self.path} diverged: {divergence_in_words(self.diverged)}")
        last = {stage.role: stage for stage in self.stages if self.step_of(stage)}
        if not last:
            how = "it is being trained" if is_owned(self.path) else "run the train command again to continue it"
            raise SelfcalError(f"{self.checkpoints(self.stages[0].name)} holds no checkpoint yet; {how}")
        return {role: self.trained(stage) for role, stage in last.items()}

    def trained(self, stage: Stage) -> nn.Module:
        """A stage's network; one that the config does not describe is not built at all."""
        _, weights, _ = checkpoints.load_average(self.checkpoints(stage.name))
        request = self.settings, self.shape, len(self.classes)
        if stage.settings(self.settings).network == "adopted-module":
            return own_model(stage.build(*request), self.own, weights, self.path).to(self.device)
        with torch.device("meta"):  # shapes only: the config could ask for more than there is memory
            shapes = {name: value.shape for name, value in stage.build(*request).state_dict().items()}
        if shapes != {name: value.shape for name, value in weights.items()}:
            raise SelfcalError(f"the {stage.name} network of {self.path} is not the one that its config.json describes")
        network = stage.build(*request)
        network.load_state_dict(weights)
        return network.to(self.device).eval().requires_grad_(False)

    @property
    def is_finished(self) -> bool:
        """Whether every stage has its last checkpoint, whatever is in it."""
        return all(
            stage.settings(self.settings).steps in checkpoints.steps_saved(self.checkpoints(stage.name))
            for stage in self.stages
        )

    def describe(self) -> dict[str, Any]:
        """What `selfcal show` prints."""
        return describe(self.path, self.config)


def unfinished_in_words(unfinished: dict[str, tuple[int, int]]) -> str:
    """Which networks are where."""
    return ", ".join(f"the {name} network is at step {step} of {steps}" for name, (step, steps) in unfinished.items())


def open_directory(
    path: str | Path, own: Callable[..., Any] | None = None, access: Access | None = None
) -> RunDirectory:
    """own: the user's module, in a run that adopted one."""
    return RunDirectory(Path(path), config_of(Path(path)), own, access or Access())


def recorded(out: Path) -> dict[str, Any] | None:
    """The config.json there, if this is a run directory."""
    return open_directory(out).config if (out / MARK).is_file() else None


Amend = Callable[[RunDirectory, dict[str, Any], list[str]], dict[str, Any] | None]
"""From the run that is there, the config wanted and the names of what differs: the config it gets, if it may."""


@contextmanager
def claimed(out: Path, config: dict[str, Any], amend: Amend = lambda *_: None) -> Iterator[None]:
    """Make the run directory, or recognise it as this very run; nobody else trains in it meanwhile."""

    def amended() -> dict[str, Any] | None:
        there = open_directory(out)
        return amend(there, config, unlike(there, config))

    def differing() -> list[str]:
        return [] if amended() else unlike(open_directory(out), config)

    check_claim(out, "run", MARK, differing)  # before the lock file would be written into somebody else's folder
    with surfaced(f"cannot write to {out}"):
        make_folder(out, within=out)
    check_inside(out / "checkpoints", within=out)  # now, and not after the first thousand steps
    with sole_owner(out):
        check_claim(out, "run", MARK, differing)
        new = amended() if (out / MARK).exists() else config
        if new is not None:
            with surfaced(f"cannot write to {out}"):
                write_json(out / MARK, new)
        yield


def unlike(there: RunDirectory, config: dict[str, Any]) -> list[str]:
    """Names of what two runs differ in, of all that training depends on."""
    complete = {"settings": there.settings.model_dump(mode="json")}  # settings added since have their defaults
    a, b = ({k: v for k, v in c.items() if k not in NOTES} for c in (there.config | complete, config))
    roles = {stage.role for one in (there.config, config) for stage in stages_of(one)}
    absent = tuple(f"settings.{role}." for role in NETWORKS if role not in roles)  # networks that neither of them has
    return sorted(name for name in {*differences(a, b)} - MAY_DIFFER if not name.startswith(absent))


def divergence_in_words(report: dict[str, Any]) -> str:
    losses = ", ".join(f"{name} {value}" for name, value in report["losses"].items())
    if "grad_norm" in report:
        losses += f", gradient norm {report['grad_norm']}"
    role = report["network"].split("-")[0]
    return (
        f"the {report['network']} network at step {report['step']} ({losses}); "
        f"a lower learning rate may help, for instance --set {role}.lr=0.0003, in a new --out"
    )
