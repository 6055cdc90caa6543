"""A run = a directory + a generator: the Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings
from selfcal.data.dataset import Dataset
from selfcal.data.pool import Pool
from selfcal.diffusion.generator import Generator, Sampling, class_index, spread
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samples import Samples
from selfcal.evaluation.effort import MINUTES
from selfcal.evaluation.evaluate import Asked, Subject, evaluate
from selfcal.evaluation.history import added, recommended, weights_of
from selfcal.methods.stage import Method, Stage
from selfcal.training.directory import Access, RunDirectory, open_directory
from selfcal.training.donor import from_run
from selfcal.training.fit import Watching, fit
from selfcal.training.request import Request
from selfcal.training.stage import OnStep


@dataclass(frozen=True)
class Run:
    """A trained run, ready to sample, predict and be evaluated."""

    directory: RunDirectory

    @cached_property
    def generator(self) -> Generator:
        """The trained networks with the method's own guidance and the settings' sampler."""
        run, sampling = self.directory, self.settings.sampling
        return Generator(
            networks=run.networks,
            noise=run.noise,
            shape=run.shape,
            classes=run.classes,
            usual=Sampling(run.method.scale, run.method.guide, sampling.sampler, sampling.steps),
            batch=sampling.batch,
            device=run.device,
            title=f"{run.method.name} · ",
        )

    def sample(
        self,
        classes: Sequence[int | str] | None = None,
        count: int = 64,
        scale: float | str | None = None,
        sampler: str | None = None,
        steps: int | None = None,
        guide: str | None = None,
        seed: int = 0,
        show_progress: bool = False,
        **options: float,
    ) -> Samples:
        """`count` examples in all, spread evenly over the classes (all of them if none is named).

        scale: λ of classifier guidance (1 unless given), or w of classifier-free guidance (0 unless given); "auto":
        the one that the last evaluation recommends. options: the sampler's own, for instance eta=1.
        """
        named = [class_index(self.classes, c) for c in classes] if classes else range(len(self.classes))
        y = spread(named, count)
        if isinstance(scale, str):
            scale = self.recommended_scale(scale)[0]
        return self.generator.sample(y, Sampling(scale, guide, sampler, steps, options), seed, show_progress)

    def recommended_scale(self, word: str = "auto") -> tuple[float, str | None]:
        """The λ that the last evaluation recommends, and by what it was chosen; else the method's usual one, and
        None."""
        if word != "auto":
            raise SelfcalError(f"--scale {word!r} is neither a number nor auto")
        return recommended(self.directory.metrics) or (self.method.scale, None)

    def predict_proba(self, x: Tensor, sigma: float | None = None) -> Tensor:
        """p(y | x) of the guide, (B, K), on clean inputs; `sigma` if the inputs carry that much noise."""
        return self.generator.predict_proba(x, sigma)

    def evaluate(
        self,
        scales: Sequence[float] | str | None = None,
        count: int | None = None,
        sampler: str | None = None,
        steps: int | None = None,
        guide: str | None = None,
        features: str = "auto",
        intervals: bool = True,
        curve: bool = True,
        seed: int = 0,
        show_progress: bool = False,
        alone: bool = False,
        keep: Callable[[Samples], None] = lambda samples: None,
        label_free: bool = True,
        minutes: float = MINUTES,
        **options: float,
    ) -> dict[str, Any]:
        """Samples at every scale, measured against the training images; adds to RUN/metrics.json and returns it.

        scales: the method's usual one if left out; of several the best is chosen on samples of their own; "auto": of
        the method's grid, and only the chosen one is reported. count: what fits into the `minutes` if left out.
        intervals: 95 % intervals for every number. curve: report every scale, or only the chosen one. label_free: also
        say which λ would be chosen without images of known class. alone: also each network as a generator by itself.
        keep: called with every reported set of samples.
        """
        before = self.directory.metrics  # one that cannot be read is said now, not after the work
        if self.diverged:
            report: dict[str, Any] = {"results": [], "selection": [], "guide": [], "guide_split": None, "learned": []}
            report |= {"alone": [], "diverged": self.diverged}
        else:
            how, grid = Sampling(None, guide, sampler, steps, options), self.method.grids["wide"]
            asked = Asked(scales, count, how, features, intervals, curve, seed, alone, label_free, minutes, grid)
            report = evaluate(self._subject(), asked, show_progress, keep)
            report |= {"pseudo_labels": self.pseudo_labels, "diverged": None, "weights": weights_of(self.networks)}
        report = added(report, before)
        self.directory.write("metrics.json", report)
        return report

    def _subject(self) -> Subject:
        about = {"method": self.method.name} | {key: self.config[key] for key in ("labels", "labelled", "seed")}
        return Subject(self.generator, self.data, self.pool.y, about)

    def classes_named(self, text: str) -> list[int | str]:
        """ "cat,dog" -> both; a class whose own name holds a comma is found too."""
        return [text] if text in self.classes else [name.strip() for name in text.split(",")]

    def describe(self) -> dict[str, Any]:
        """What `selfcal show` prints."""
        return self.directory.describe()

    # What the directory knows, by the names users type.

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def config(self) -> dict[str, Any]:
        return self.directory.config

    @property
    def method(self) -> Method:
        return self.directory.method

    @property
    def settings(self) -> Settings:
        return self.directory.settings

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.directory.stages

    @property
    def noise(self) -> Noise:
        return self.directory.noise

    @property
    def classes(self) -> tuple[str, ...]:
        return self.directory.classes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.directory.shape

    @property
    def data(self) -> Dataset:
        return self.directory.data

    @property
    def pool(self) -> Pool:
        return self.directory.pool

    @property
    def networks(self) -> dict[str, nn.Module]:
        return self.directory.networks

    @property
    def diverged(self) -> dict[str, Any] | None:
        return self.directory.diverged

    @property
    def pseudo_labels(self) -> dict[str, Any] | None:
        return self.directory.pseudo_labels


def load(path: str | Path, data: str | Path | None = None, anyway: bool = False) -> Run:
    """Open a run directory.

    data: where its data lies now, if it moved; it must be the same, by its hash. anyway: data that has changed will do.
    """
    return Run(open_directory(path, Access(None if data is None else str(data), anyway)))


def train(
    data: str | Path,
    method: str = "cg-sc-all",
    labels: str | float = 0.02,
    out: str | Path = "runs/selfcal",
    *,
    seed: int = 0,
    steps: int | None = None,
    score: str | Path | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    until: str | None = None,
    on_step: OnStep | None = None,
    show_progress: bool = False,
) -> Run:
    """Train what the method needs and return the run. Everything is checked before anything is written.

    score: another run whose unconditional model is taken over instead of being trained.
    until: the stage after which to stop, for instance "score"; the same call without it goes on.
    steps: how long each network is trained. settings: {"terms.sc_weight": 10} or ["terms.sc_weight=10"].
    on_step: called as on_step(network, step, values) with every line of log.jsonl, for trackers.
    """
    wanted = Request(data, method, labels, seed, steps, preset, settings).prepared()
    donor = None if score is None else from_run(open_directory(score), wanted)
    return Run(fit(wanted, Path(out), donor, Watching(until, on_step, show_progress)))
