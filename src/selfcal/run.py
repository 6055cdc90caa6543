"""A run = a directory + a generator: the Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.bounds import check_minutes
from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.progress import wanted
from selfcal.core.settings import Settings
from selfcal.core.team import ALONE, Team
from selfcal.core.turns import in_turn
from selfcal.data.dataset import Dataset
from selfcal.data.labels import judged_by
from selfcal.data.pool import Pool
from selfcal.diffusion.generator import Generator, Sampling, class_index, spread
from selfcal.diffusion.guidance import GUIDES
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samples import ANY_CLASS, Drawing, Samples
from selfcal.evaluation.diagnosis.diagnose import MINUTES as DOCTORS_MINUTES
from selfcal.evaluation.diagnosis.diagnose import Diagnosis, diagnosed, of_diverged
from selfcal.evaluation.diagnosis.measure import Examination, without_held_out
from selfcal.evaluation.effort import MINUTES
from selfcal.evaluation.evaluate import Asked, Subject, evaluate
from selfcal.evaluation.history import added, recommended, weights_of
from selfcal.evaluation.suggestion import suggest
from selfcal.methods.stage import Method, Stage
from selfcal.nets.precision import compiled, in_precision, set_products
from selfcal.training import processes
from selfcal.training.directory import Access, RunDirectory, open_directory, recorded
from selfcal.training.donor import from_run, taking_over
from selfcal.training.fit import Watching, fit
from selfcal.training.history import History, Plot, plot
from selfcal.training.lock import is_owned
from selfcal.training.own_model import opened
from selfcal.training.request import Request
from selfcal.training.stage import OnStep
from selfcal.training.tracking import named

NOTHING_MEASURED: dict[str, Any] = {
    "results": [],
    "selection": [],
    "guide": [],
    "guide_split": None,
    "learned": [],
    "alone": [],
}


@dataclass(frozen=True, repr=False)
class Run:
    """A trained run, ready to sample, predict and be evaluated.

    `train`, `adopt` and `load` return one:

        run = selfcal.load("runs/digits")
        run.sample(classes=3, count=16, scale=1.5)
        run.predict(run.data.x_test[:5])
    """

    directory: RunDirectory
    team: Team = ALONE  # with whom sampling and evaluation are shared

    @cached_property
    def generator(self) -> Generator:
        """The trained networks with the method's own guidance and the settings' sampler."""
        run, sampling, how = self.directory, self.settings.sampling, self.settings.run
        set_products(how.precision)
        for network in run.networks.values() if how.compile else ():
            compiled(network)
        return Generator(
            networks={role: in_precision(network, how.precision) for role, network in run.networks.items()},
            noise=run.noise,
            shape=run.shape,
            classes=run.classes,
            usual=Sampling(run.method.scale, run.method.guide, sampling.sampler, sampling.steps),
            batch=sampling.batch,
            device=run.device,
            title=f"{run.method.name} · ",
            team=self.team,
        )

    def sample(
        self,
        classes: Sequence[int | str] | int | str | None = None,
        count: int = 64,
        scale: float | str | None = None,
        sampler: str | None = None,
        steps: int | None = None,
        guide: str | None = None,
        seed: int = 0,
        show_progress: bool | None = None,
        **options: float,
    ) -> Samples:
        """`count` examples in all, spread evenly over the classes (all of them if none is named).

            run.sample(classes="cat", count=16, scale=1.5)

        classes: 3, "cat", "cat,dog" or a list of such.
        scale: λ of classifier guidance (1 unless given), or w of classifier-free guidance (0 unless given); "auto":
        the one that the last evaluation recommends. options: the sampler's own, for instance eta=1.
        """
        return self.draw(classes, count, scale, sampler, steps, guide, seed, show_progress, **options).all()

    def draw(
        self,
        classes: Sequence[int | str] | int | str | None = None,
        count: int = 64,
        scale: float | str | None = None,
        sampler: str | None = None,
        steps: int | None = None,
        guide: str | None = None,
        seed: int = 0,
        show_progress: bool | None = None,
        **options: float,
    ) -> Drawing:
        """As `sample`, made while they are written or asked for: more samples than memory would hold.

        run.draw(count=50_000).save("many.npz")
        """
        named = self.check_classes(self._listed(classes))
        self.check_begun(guide)
        y = spread(named, count)
        if isinstance(scale, str):
            scale = self.recommended_scale(scale)[0]
        drawing = self.generator.draw(y, Sampling(scale, guide, sampler, steps, options), seed, show_progress)
        if not GUIDES[guide or self.method.guide].knows_classes:  # whatever was asked for
            drawing = replace(drawing, y=torch.zeros_like(y), classes=(ANY_CLASS,))
        return replace(drawing, made=drawing.made | {"unfinished": self.unfinished}) if self.unfinished else drawing

    def check_classes(self, names: Sequence[int | str] | None) -> Sequence[int]:
        """The places of these classes, of all if none is named; an unknown one is an error."""
        return [class_index(self.classes, c) for c in names or ()] or range(len(self.classes))

    def recommended_scale(self, word: str = "auto") -> tuple[float, str | None]:
        """The λ that the last evaluation recommends, and by what it was chosen; else the method's usual one, and
        None."""
        if word != "auto":
            raise SelfcalError(f"--scale {word!r} is neither a number nor auto")
        return recommended(self.directory.metrics) or (self.method.scale, None)

    def _listed(self, classes: Sequence[int | str] | int | str | None) -> Sequence[int | str]:
        if isinstance(classes, str):
            return self.classes_named(classes)
        return [classes] if isinstance(classes, int) else [] if classes is None else classes

    def predict_proba(self, x: Any, sigma: float | None = None) -> Tensor:
        """p(y | x) of the guide, (B, K), on clean inputs; `sigma` if the inputs carry that much noise.

            run.predict_proba(Image.open("cat.png"))

        x: uint8 images, floats in [−1, 1], pictures of PIL, samples; one or a batch.
        """
        return self.generator.predict_proba(x, sigma)

    def predict(self, x: Any, sigma: float | None = None) -> list[str]:
        """The likeliest class of each input, by its name; inputs as `predict_proba` takes them."""
        return [self.classes[c] for c in self.predict_proba(x, sigma).argmax(-1).tolist()]

    def suggest(self, count: int = 20, seed: int = 0) -> list[str]:
        """Training images whose labels would tell the guide most, by name, the most telling first; evaluation/
        suggestion.py says which these are."""
        places = suggest(self.generator, self.data.x, self.pool.y, count, seed)
        return [self.data.names[i] for i in places.tolist()]

    def labels_seen(self) -> list[tuple[str, str]]:
        """(name, class) of every training example whose label the run was shown."""
        return [(self.data.names[i], self.classes[int(self.pool.y[i])]) for i in self.pool.labelled.tolist()]

    def history(self) -> History:
        """The lines of log.jsonl as a table."""
        return History(self.directory.journal.lines())

    def plot(self) -> Plot:
        """Losses over the steps; a figure of matplotlib, which notebooks show."""
        return plot(self.history())

    def __repr__(self) -> str:
        data, of = self.config["data"], self.config["labelled"]
        state = "diverged" if self.diverged else "finished" if self.directory.is_finished else "not finished"
        known = f"{of} of {data['examples']} labelled"
        return f"Run({str(self.path)!r}: {self.method.name} on {data['name']}, {known}, {state})"

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
        show_progress: bool | None = None,
        alone: bool = False,
        test_labels: str | Path | None = None,
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
        keep: called with every reported set of samples. test_labels: a table of labels to judge by.
        """
        self.check_begun(guide)
        before = self.directory.metrics  # one that cannot be read is said now, not after the work
        report: dict[str, Any] = NOTHING_MEASURED | {"diverged": self.diverged}
        if not self.diverged:
            how, grid = Sampling(None, guide, sampler, steps, options), self.method.grids["wide"]
            asked = Asked(scales, count, how, features, intervals, curve, seed, alone, label_free, minutes, grid)
            report = evaluate(self._subject(test_labels), asked, wanted(show_progress) and self.team.is_main, keep)
            report |= {"pseudo_labels": self.pseudo_labels, "diverged": None, "weights": weights_of(self.networks)}
        report |= {"unfinished": self.unfinished or None}
        return self._record(report) if self.team.is_main else added(report, before)

    def _record(self, report: dict[str, Any]) -> dict[str, Any]:
        """Beside all earlier evaluations, one of which may have ended while this one was under way."""
        with in_turn(self.path, "metrics.json"):
            report = added(report, self.directory.metrics)
            self.directory.write("metrics.json", report)
        return report

    def diagnose(
        self,
        minutes: float = DOCTORS_MINUTES,
        seed: int = 0,
        show_progress: bool | None = None,
        held_out: bool = True,
    ) -> Diagnosis:
        """What is wrong with this run and what to do about it; writes RUN/doctor.json, of which `selfcal report RUN`
        makes a page.

            print(run.diagnose())

        minutes: how long it may take, about. held_out: False judges as if no class were known but those that the
        method was shown.
        """
        check_minutes(minutes)
        self.check_begun()
        _ = self.directory.metrics  # one that cannot be read is said now, not after the work
        if self.diverged:
            diagnosis = of_diverged(self.directory, self.diverged)
        else:
            subject = self._subject() if held_out else without_held_out(self._subject())
            diagnosis = diagnosed(Examination(self.directory, subject, minutes, seed, wanted(show_progress)))
        diagnosis.write(self.path)
        return diagnosis

    def _subject(self, test_labels: str | Path | None = None) -> Subject:
        data = self.data if test_labels is None else judged_by(self.data, test_labels)
        about = {"method": self.method.name} | {key: self.config[key] for key in ("labels", "labelled", "seed")}
        if self.unfinished:
            about["unfinished"] = self.unfinished
        return Subject(self.generator, data, self.pool.y, about)

    def check_begun(self, guide: str | None = None) -> None:
        """A run that was stopped early may lack a network that the guide needs."""
        needs = look_up("guide", guide or self.method.guide, GUIDES).needs
        begun = {stage.role for stage in self.stages if self.directory.step_of(stage)}
        missing = [stage.role for stage in self.stages if stage.role in needs and stage.role not in begun]
        if missing and begun and not self.diverged:
            rest = "; until then: --guide unconditional" if begun == {"score"} else ""
            how = "wait for it" if (owned := is_owned(self.path)) else "give the train command again to go on"
            raise SelfcalError(
                f"{self.path} {'is being trained' if owned else 'was stopped'}, and its {missing[0]} network has no "
                f"checkpoint yet; {how}{rest}"
            )

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
    def unfinished(self) -> dict[str, tuple[int, int]]:
        """By network (step, steps) of those that training has not come to the end of."""
        return self.directory.unfinished

    @property
    def diverged(self) -> dict[str, Any] | None:
        return self.directory.diverged

    @property
    def pseudo_labels(self) -> dict[str, Any] | None:
        return self.directory.pseudo_labels


def load(
    path: str | Path,
    module: Callable[..., Any] | None = None,
    *,
    data: str | Path | None = None,
    anyway: bool = False,
    together: bool = False,
) -> Run:
    """Open a run directory.

        run = selfcal.load("runs/digits")

    module: of a run that adopted a module of your own, that module or its constructor; a run holds no code.
    data: where its data lies now, if it moved; it must be the same, by its hash. anyway: data that has changed will do.
    together: sampling and evaluation are shared with the other processes that torchrun started, all of which must then
    ask for the same; they give what one process would.
    """
    team = processes.team() if together else ALONE
    run = open_directory(path, access=Access(None if data is None else str(data), anyway))
    return Run(run if module is None else replace(run, own=opened(module, run.config, path)), team)


def train(
    data: Any,
    method: str = "cg-sc-all",
    labels: str | float | None = None,
    out: str | Path = "runs/selfcal",
    *,
    seed: int = 0,
    steps: int | None = None,
    minutes: float | None = None,
    score: str | Path | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    size: int | None = None,
    skip_broken: bool = False,
    test_labels: str | Path | None = None,
    until: str | None = None,
    on_step: OnStep | None = None,
    track: str | Sequence[str] | None = None,
    show_progress: bool | None = None,
) -> Run:
    """Train what the method needs and return the run. Everything is checked before anything is written.

        run = selfcal.train("digits", method="cg-sc-all", labels=0.02, out="runs/digits")

    data: a name, a folder, an .npz; or arrays (x, y), {"x": …, "y": …, "x_test": …}, or a torch Dataset of (image,
    label), which the run keeps a copy of.
    labels: all that the data has, if left out, and 2 % of the built-in sets'.
    size, skip_broken: of a folder, the middle square of each image at that many pixels; without broken files.
    test_labels: a table of labels to judge by, which no method sees.
    score: another run whose unconditional model is taken over instead of being trained.
    until: the stage after which to stop, for instance "score"; the same call without it goes on.
    steps: how long each network is trained; minutes: the time for all of them, from which their steps are planned.
    A finished run is made longer by more of either, an unfinished one longer or shorter.
    settings: {"terms.sc_weight": 10} or ["terms.sc_weight=10"].
    on_step: called as on_step(network, step, values) with every line of log.jsonl.
    track: "tensorboard", "wandb" or "trackio" (or several): told the same, the settings, and pictures on the way.
    """
    out, trackers = Path(out), named(track)
    how_read: dict[str, Any] = {"size": size, "skip_broken": skip_broken, "test_labels": test_labels}
    request = Request(data, method, labels, seed, steps, preset, settings, **how_read, minutes=minutes)
    wanted = request.prepared(recorded=recorded(out))
    donor = None
    if score is not None:
        giver = open_directory(score)
        wanted = taking_over(giver, wanted)
        donor = from_run(giver, wanted)
    return Run(fit(wanted, out, donor, Watching(until, on_step, show_progress, trackers)))
