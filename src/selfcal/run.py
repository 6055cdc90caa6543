"""A run directory: what was asked (config.json), what was learned (checkpoints), what came of it.

RUN/config.json  RUN/log.jsonl  RUN/checkpoints/  RUN/metrics.json  RUN/samples/
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings
from selfcal.data import Dataset, Pool, load_data, reveal
from selfcal.diffusion.generator import Samples, sample_classes
from selfcal.diffusion.noise import Noise
from selfcal.methods import table as methods
from selfcal.training import checkpoint, records


@dataclass(frozen=True)
class Run:
    """A trained run, ready to sample, predict and be evaluated."""

    path: Path
    config: dict[str, Any]

    @property
    def method(self) -> methods.Method:
        return methods.find(self.config["method"])

    @cached_property
    def settings(self) -> Settings:
        return Settings.model_validate(self.config["settings"])

    @property
    def stages(self) -> tuple[methods.Stage, ...]:
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

    @cached_property
    def _data(self) -> tuple[Dataset, Tensor]:
        data, seen = reveal(load_data(self.config["data"]["source"]), self.config["labels"], self.config["seed"])
        if data.sha256 != self.config["data"]["sha256"]:
            raise SelfcalError(f"{self.config['data']['source']} has changed since {self.path} was trained on it")
        return data, seen

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

    @cached_property
    def networks(self) -> dict[str, nn.Module]:
        """The trained networks by role, with averaged weights; of several stages with one role, the last."""
        if self.diverged:
            raise SelfcalError(f"{self.path} diverged: {divergence_in_words(self.diverged)}")
        found = {}
        for stage in {s.role: s for s in self.stages}.values():
            step, weights, _ = checkpoint.load_average(self.path / "checkpoints" / stage.name)
            wanted = stage.settings(self.settings).steps
            if step < wanted:
                raise SelfcalError(
                    f"the {stage.name} network of {self.path} is at step {step} of {wanted}; "
                    "give the train command again to finish it"
                )
            network = self._built(stage, weights)
            found[stage.role] = network.to(self.device).eval().requires_grad_(False)
        return found

    def _built(self, stage: methods.Stage, weights: dict[str, Tensor]) -> nn.Module:
        """The stage's network with these weights; a config that asks for another one is not built at all."""
        asked = self.settings, self.shape, len(self.classes)
        with torch.device("meta"):  # shapes only: the config could ask for more than there is memory
            shapes = {name: value.shape for name, value in stage.build(*asked).state_dict().items()}
        if shapes != {name: value.shape for name, value in weights.items()}:
            raise SelfcalError(f"the {stage.name} network of {self.path} is not the one that its config.json describes")
        network = stage.build(*asked)
        network.load_state_dict(weights)
        return network

    def sample(
        self,
        classes: list[int | str] | None = None,
        count: int = 64,
        scale: float | None = None,
        sampler: str | None = None,
        steps: int | None = None,
        guide: str | None = None,
        seed: int = 0,
        show_progress: bool = False,
        **options: float,
    ) -> Samples:
        """`count` examples in all, spread evenly over the classes (all of them if none is named).

        scale: λ of classifier guidance (1 unless given), or w of classifier-free guidance (0 unless given).
        """
        chosen = self.settings.sampling
        if scale and (guide or self.method.guide) == "conditional":
            raise SelfcalError(f"--scale {scale:g}: a plain conditional model has no guidance to scale; leave it out")
        return sample_classes(
            self.networks,
            guide=guide or self.method.guide,
            y=spread([self.class_index(c) for c in classes] if classes else range(len(self.classes)), count),
            scale=self.method.scale if scale is None else scale,
            sampler=sampler or chosen.sampler,
            steps=chosen.steps if steps is None and sampler in (None, chosen.sampler) else steps,
            noise=self.noise,
            shape=self.shape,
            classes=self.classes,
            batch=chosen.batch,
            seed=seed,
            device=self.device,
            show_progress=show_progress,
            title=f"{self.method.name} · ",
            options=options,
        )

    @torch.no_grad()
    def predict_proba(self, x: Tensor, sigma: float | None = None) -> Tensor:
        """p(y | x) of the guide, (B, K), on clean inputs; `sigma` if the inputs carry that much noise."""
        if "classifier" not in self.networks:
            raise SelfcalError(f"the method {self.method.name} has no classifier to predict with")
        x = torch.as_tensor(x, dtype=torch.float32)
        if tuple(x.shape[1:]) != self.shape:
            raise SelfcalError(f"inputs are shaped {tuple(x.shape)}; expected (B, {', '.join(map(str, self.shape))})")
        level = torch.full((len(x),), self.noise.sigma_min if sigma is None else sigma)
        classifier, batch = self.networks["classifier"], self.settings.sampling.batch
        parts = [
            classifier(images.to(self.device), sigmas.to(self.device)).softmax(-1).cpu()
            for images, sigmas in zip(x.split(batch), level.split(batch), strict=True)
        ]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.classes))

    def evaluate(self, **choices: Any) -> dict[str, Any]:
        """Every metric into metrics.json; see `selfcal.evaluation.evaluate`."""
        from selfcal.evaluation.evaluate import evaluate

        return evaluate(self, **choices)

    def classes_named(self, text: str) -> list[int | str]:
        """ "cat,dog" -> both; a class whose own name holds a comma is found too."""
        return [text] if text in self.classes else [name.strip() for name in text.split(",")]

    def class_index(self, name: int | str) -> int:
        """A class by its name, or by its position where no class is called so."""
        text = str(name)
        if text in self.classes:
            return self.classes.index(text)
        if text.isdigit() and int(text) < len(self.classes):
            return int(text)
        raise SelfcalError(f"unknown class {text!r}; this run has {', '.join(self.classes)}")

    def describe(self) -> dict[str, Any]:
        """What `selfcal show` prints."""
        steps, hashes, damaged = {}, {}, {}
        for stage in self.stages:
            folder = self.path / "checkpoints" / stage.name
            if checkpoint.steps_saved(folder):
                try:
                    steps[stage.name], _, hashes[stage.name] = checkpoint.load_average(folder)
                except checkpoint.Damaged as problem:
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
            "weights_sha256": hashes,
            "settings": self.config["settings"],
            "metrics": records.read_if_there(self.path / "metrics.json", records.Metrics),
        }


def divergence_in_words(report: dict[str, Any]) -> str:
    losses = ", ".join(f"{name} {value}" for name, value in report["losses"].items())
    if "grad_norm" in report:
        losses += f", gradient norm {report['grad_norm']}"
    role = report["network"].split("-")[0]
    return (
        f"the {report['network']} network at step {report['step']} ({losses}); "
        f"a lower learning rate may help, for instance --set {role}.lr=0.0003, in a new --out"
    )


def spread(classes: list[int] | range, count: int) -> Tensor:
    """`count` class indices, as evenly as possible, in the order of the classes."""
    if count < 1:
        raise SelfcalError(f"--count {count}: at least one image must be asked for")
    each, extra = divmod(count, len(classes))
    return torch.cat([torch.full((each + (i < extra),), c, dtype=torch.long) for i, c in enumerate(classes)])


def load(path: str | Path) -> Run:
    """Open a run directory."""
    path = Path(path)
    file = path / "config.json"
    if not file.is_file():
        raise SelfcalError(f"{path} is not a run directory: it has no config.json")
    run = Run(path, records.read_config(file))
    methods.find(run.config["method"])
    return run
