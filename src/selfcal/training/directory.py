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

from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced, write_json
from selfcal.core.settings import Settings
from selfcal.data.dataset import Dataset
from selfcal.data.labels import judged_by, reveal
from selfcal.data.memory import KEPT
from selfcal.data.pool import Pool
from selfcal.data.sources import SOURCES, load_data, spelled
from selfcal.diffusion.noise import Noise
from selfcal.methods import table
from selfcal.methods.stage import Method, Stage
from selfcal.training import checkpoints, examples, records
from selfcal.training.journal import Journal
from selfcal.training.learned import learned
from selfcal.training.lock import check_claim, differences, sole_owner
from selfcal.training.own_model import own_model

MARK = "config.json"
MAY_DIFFER = {"selfcal", "data.source", "labels"}  # versions and paths; the hashes beside them must agree
MAY_DIFFER |= {"data.size", "data.skip_broken"}  # how the same pixels were read
MAY_DIFFER |= {"data.test"}  # nothing is trained on test images
MAY_DIFFER |= {"settings.score.adopted.probe"}  # numbers that a network gave, on whatever machine


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
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def checkpoints(self, stage: str) -> Path:
        return checkpoints.folder_of(self.path, stage)

    @property
    def journal(self) -> Journal:
        return Journal(self.path / "log.jsonl", [stage.name for stage in self.stages])

    @cached_property
    def _data(self) -> tuple[Dataset, Tensor]:
        """The examples it was trained on and the labels it was shown, verified; or anyway those that are there now."""
        about, source = self.config["data"], self.data_source
        pile = load_data(source, about.get("size"), bool(about.get("skip_broken")))
        try:
            data, labels = reveal(pile, self.config["labels"], self.config["seed"])
        except SelfcalError:  # labels that no longer fit: what has changed is said below
            data, labels = pile, None
        if labels is None or data.sha256 != about["sha256"]:
            known = records.read_if_there(self.path / examples.FILE, records.Examples)
            change = examples.Change(data, None if known is None else examples.Examples.read(known), self.config)
            said = f"{source} has changed since {self.path} was trained on it"
            data, labels = change.settled(said, self.access.anyway)
        return judged_by(data, about["test_labels"]) if about.get("test_labels") else data, labels

    @property
    def data_source(self) -> str:
        """Where the data lies, in the words of whoever says so last."""
        source = self.config["data"]["source"]
        return self.access.source or (str(self.path / KEPT) if source == KEPT else spelled(source))

    def remember_examples(self, data: Dataset, labels: Tensor) -> None:
        """One by one, unless they cannot change (a built-in data set's, or kept in the run) or are too many."""
        if self.config["data"]["source"] in {*SOURCES, KEPT} or len(data.x) > examples.MOST:
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
        return records.read_if_there(self.path / "diverged.json", records.Divergence)

    @property
    def pseudo_labels(self) -> dict[str, Any] | None:
        """How many labels the classifier gave and how many are right, by stage."""
        return records.read_if_there(self.path / "pseudo_labels.json", records.PseudoLabels)

    @property
    def metrics(self) -> dict[str, Any] | None:
        """What `selfcal evaluate` found, the newest first; None before."""
        return records.read_if_there(self.path / "metrics.json", records.Metrics)

    def write(self, name: str, value: Any) -> None:
        """One of its JSON files."""
        with surfaced(f"cannot write {self.path / name}"):
            write_json(self.path / name, value)

    @cached_property
    def networks(self) -> dict[str, nn.Module]:
        """The trained networks by role, with averaged weights; of several stages with one role, the last."""
        if self.diverged:
            raise SelfcalError(f"{self.path} diverged: {divergence_in_words(self.diverged)}")
        return {stage.role: self.trained(stage) for stage in {s.role: s for s in self.stages}.values()}

    def trained(self, stage: Stage) -> nn.Module:
        """A finished stage's network; one that the config does not describe is not built at all."""
        step, weights, _ = checkpoints.load_average(self.checkpoints(stage.name))
        wanted = stage.settings(self.settings).steps
        if step < wanted:
            raise SelfcalError(
                f"the {stage.name} network of {self.path} is at step {step} of {wanted}; "
                "give the train command again to finish it"
            )
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
        steps, hashes, damaged = {}, {}, {}
        for stage in self.stages:
            folder = self.checkpoints(stage.name)
            if checkpoints.steps_saved(folder):
                try:
                    steps[stage.name], _, hashes[stage.name] = checkpoints.load_average(folder)
                except checkpoints.Damaged as problem:
                    damaged[stage.name] = str(problem)
        wanted = {s.name: s.settings(self.settings).steps for s in self.stages}
        return {
            "path": str(self.path),
            **{key: self.config[key] for key in ("method", "labels", "labelled", "seed", "data")},
            "step": steps,
            "steps": wanted,
            "finished": steps == wanted,
            "damaged": damaged,
            "diverged": self.diverged,
            "pseudo_labels": self.pseudo_labels,
            "learned": learned(self.journal.lines()),
            "weights_sha256": hashes,
            "settings": self.config["settings"],
            "metrics": self.metrics,
        }


def open_directory(
    path: str | Path, own: Callable[..., Any] | None = None, access: Access | None = None
) -> RunDirectory:
    """own: the user's module, in a run that adopted one."""
    path = Path(path)
    if not (path / MARK).is_file():
        raise SelfcalError(f"{path} is not a run directory: it has no {MARK}")
    run = RunDirectory(path, records.read_config(path / MARK), own, access or Access())
    table.find(run.config["method"])
    return run


@contextmanager
def claimed(out: Path, config: dict[str, Any]) -> Iterator[None]:
    """Make the run directory, or recognise it as this very run; nobody else trains in it meanwhile."""

    def differing() -> list[str]:
        there = open_directory(out)
        complete = {"settings": there.settings.model_dump(mode="json")}  # settings added since have their defaults
        return sorted(set(differences(there.config | complete, config)) - MAY_DIFFER)

    check_claim(out, "run", MARK, differing)  # before the lock file would be written into somebody else's folder
    with surfaced(f"cannot write to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with sole_owner(out):
        check_claim(out, "run", MARK, differing)
        if not (out / MARK).exists():
            with surfaced(f"cannot write to {out}"):
                write_json(out / MARK, config)
        yield


def divergence_in_words(report: dict[str, Any]) -> str:
    losses = ", ".join(f"{name} {value}" for name, value in report["losses"].items())
    if "grad_norm" in report:
        losses += f", gradient norm {report['grad_norm']}"
    role = report["network"].split("-")[0]
    return (
        f"the {report['network']} network at step {report['step']} ({losses}); "
        f"a lower learning rate may help, for instance --set {role}.lr=0.0003, in a new --out"
    )
