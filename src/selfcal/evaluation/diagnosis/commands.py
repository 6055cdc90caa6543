"""The very command that a finding ends in, from what the run itself was asked for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfcal.data.memory import KEPT
from selfcal.evaluation.diagnosis.training_log import is_adopted
from selfcal.training.directory import RunDirectory

CALIBRATED = "cg-sc-all"
FOUND_OUT = ("score.", "noise.", "classifier.adopted", "classifier.network", "classifier.start")


@dataclass(frozen=True)
class Commands:
    """What to type about a run."""

    run: RunDirectory

    @property
    def classes(self) -> int:
        return len(self.run.classes)

    @property
    def pooled(self) -> bool:
        net = self.run.settings.classifier
        return net.network == "ncsnpp" and net.head == "pooled"

    @property
    def page(self) -> str:
        return str(self.run.path / "doctor.html")

    def again(self) -> str:
        """The command that made it: it goes on."""
        asked = self._asked
        return self._train(self.run.method.name, str(self.run.path), asked.get("steps")) + sets(asked["settings"])

    def anew(self, *changes: str, method: str | None = None, other_labels: bool = False) -> str:
        """A run beside it, with what its user asked for but for the changes; takes over its score model, if it has
        one that fits."""
        method = method or self.run.method.name
        beside = f"{self.run.path}-{'again' if method == self.run.method.name else method}"
        kept = self._asked["settings"] | dict(change.split("=", 1) for change in changes)
        steps = None if any(".steps=" in change for change in changes) else self._asked.get("steps")
        words = self._train(method, beside, steps)
        shares = any(stage.name == "score" and not is_adopted(self.run, stage) for stage in self.run.stages)
        if shares and not other_labels and not any(change.startswith("score.") for change in changes):
            words += f" --score {shlex.quote(str(self.run.path))}"
        return words + sets(kept)

    def relabelled(self) -> str:
        """With the same words, once the labels are corrected where they are kept."""
        return self.anew(other_labels=True)

    def evaluated(self, scales: Sequence[float]) -> str:
        return f"selfcal evaluate {shlex.quote(str(self.run.path))} --scales {','.join(f'{s:g}' for s in scales)}"

    def sampled(self, scale: float) -> str:
        return f"selfcal sample {shlex.quote(str(self.run.path))} --scale {scale:g}"

    def against_copies(self) -> tuple[str, str]:
        if self.run.method.guide == "classifier":
            return "guide less", self.sampled(1)
        return "use a method that learns from the unlabelled images, too", self.anew(method=CALIBRATED)

    def more_labels(self, calibrated: bool) -> tuple[str, str]:
        label = "label more images"
        if not calibrated:
            return f"{label}, and let the guide learn from the unlabelled ones, too", self.anew(method=CALIBRATED)
        return f"{label}: those that the guide is least sure of", f"selfcal app {shlex.quote(str(self.run.path))}"

    def calibrated(self, calibrated: bool) -> tuple[str, str]:
        if not calibrated:
            return "self-calibrate it", self.anew(method=CALIBRATED)
        weight = self.run.settings.terms.sc_weight or 1.0
        return "weigh its calibration more, or label more images", self.anew(f"terms.sc_weight={3 * weight:g}")

    @property
    def _asked(self) -> dict[str, Any]:
        """What its user said of the settings; runs of before did not note it. What `selfcal adopt` found out itself
        it will find out again."""
        asked = self.run.config.get("asked")
        said: dict[str, Any] = asked if isinstance(asked, dict) else {}
        settings: dict[str, Any] = said.get("settings", {})
        if self._adopted:
            settings = {key: value for key, value in settings.items() if not key.startswith(FOUND_OUT)}
        return said | {"settings": settings}

    @property
    def _adopted(self) -> bool:
        return any(is_adopted(self.run, stage) for stage in self.run.stages)

    def _train(self, method: str, out: str, steps: int | None) -> str:
        config = self.run.config
        source = config["data"]["source"]
        data = str(self.run.path / KEPT) if source == KEPT else source
        verb = ["adopt", "MODEL", "--data", data] if self._adopted else ["train", data]
        words = ["selfcal", *verb, "--method", method, "--labels", config["labels"], "--out", out]
        for option, value in (("--seed", config["seed"]), ("--preset", self._asked.get("preset")), ("--steps", steps)):
            words += [option, str(value)] if value else []
        return shlex.join(words)


def sets(changes: Mapping[str, Any]) -> str:
    """As options; what `selfcal.train` took as a list is separated by commas there."""

    def written(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    return "".join(f" --set {shlex.quote(f'{key}={written(value)}')}" for key, value in changes.items())
