"""One network from where it stands to its last step: what is logged, what is saved, where it rolls back to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced
from selfcal.core.progress import bar, say
from selfcal.core.randomness import random_state
from selfcal.core.settings import Settings
from selfcal.core.team import Team
from selfcal.data.pixels import Examples
from selfcal.data.pool import Pool, mirrored_at_random
from selfcal.diffusion.noise import Noisy
from selfcal.methods.stage import Context, Losses, Objective, Stage
from selfcal.nets.precision import compiled, set_products
from selfcal.training import checkpoints
from selfcal.training.ahead import Ahead
from selfcal.training.beginning import freeze_encoder, start_from_score
from selfcal.training.directory import RunDirectory
from selfcal.training.journal import DIVERGED, ROLLED_BACK
from selfcal.training.loop import Learner, Step
from selfcal.training.preview import Previews
from selfcal.training.processes import wait_for_everyone
from selfcal.training.signals import Interrupted, StopRequest

LARGEST = 1e8  # a loss or a gradient beyond it has diverged
MOST_ROLLBACKS = 3
LOWER = 0.5  # what a rollback multiplies the learning rate by

OnStep = Callable[[str, int, Mapping[str, Any]], None]
"""Called with every line of log.jsonl: the network, its step, and the values by name."""
Pause = Callable[[], bool]
"""Asked at every scheduled checkpoint but the last: whether to stop there for a new plan, the same in all processes."""


class Diverged(Exception):
    """A loss or gradient left the finite numbers: a result to report, since some methods are known for it."""

    def __init__(self, network: str, step: int, losses: Mapping[str, float], grad_norm: float = 0.0) -> None:
        super().__init__(network, step)
        self.step = step
        self.values = {**losses, "grad_norm": grad_norm}
        self.report: dict[str, Any] = {
            "network": network,
            "step": step,
            "losses": {k: str(v) for k, v in losses.items() if not k.endswith("_fraction")},
            "grad_norm": str(grad_norm),
        }


@dataclass(frozen=True)
class Batches:
    """Where a stage's batches come from: the examples, and the labels it may see."""

    x: Examples
    pool: Pool

    def draw(self, stage: Stage, context: Context, size: int, rng: torch.Generator) -> Noisy:
        """A noisy batch as the stage wants it, from this random state alone."""
        pick = stage.draw(self.pool, size, rng)
        x0 = self.x[pick]
        if context.settings.data.flips:
            x0 = mirrored_at_random(x0, rng)
        return context.training_noise(stage.role).perturb(x0, self.pool.y[pick], rng)


class StageTraining:
    """A stage of a run on its way. Nothing is read or written before `finish`."""

    learner: Learner
    objective: Objective

    def __init__(
        self,
        run: RunDirectory,
        stage: Stage,
        context: Context,
        batches: Batches,
        accelerator: Accelerator,
        on_step: OnStep | None = None,
        preview_every: int = 0,
        pause: Pause = lambda: False,
    ) -> None:
        self.run, self.stage, self.context, self.batches = run, stage, context, batches
        self.accelerator, self.on_step, self.pause, self.team = accelerator, on_step, pause, Team(accelerator)
        self.previews = Previews(run, stage, context.networks, preview_every, accelerator.device)
        self.seed: int = run.config["seed"]
        self.folder = run.checkpoints(stage.name)
        self.journal = run.journal
        self.rollbacks: list[int] = []  # the steps it went back to, so far

    @property
    def is_main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    def scheduled(self, step: int) -> bool:
        return step % self.run.settings.run.save_every == 0 or step == self.stage.settings(self.run.settings).steps

    def finish(self, stop: StopRequest, show_progress: bool) -> nn.Module | None:
        """To the last step, rolling back where it must; returns the average, frozen, or None where it paused."""
        self._resume()
        if self.is_main:
            self.journal.rewind(self.stage.name, self.learner.step, len(self.rollbacks))
            with surfaced(f"cannot tidy {self.folder}"):
                self._thin_out()  # a killed process may have saved a checkpoint and not come to this
        while True:
            try:
                done = self._go(stop, show_progress)
                wait_for_everyone(self.accelerator)
                return self.learner.average.module.eval().requires_grad_(False) if done else None
            except Diverged as divergence:
                if len(self.rollbacks) == MOST_ROLLBACKS:
                    self._log(divergence.step, {"event": DIVERGED, **divergence.values})
                    divergence.report["rollbacks"] = len(self.rollbacks)
                    raise
                self._roll_back(divergence)

    def _resume(self) -> None:
        """From the newest good checkpoint, or from the start; a damaged one is named and set aside."""
        if self.is_main:
            with surfaced(f"cannot tidy {self.folder}"):
                checkpoints.tidy(self.folder)
                for problem in checkpoints.set_aside_damaged(self.folder):
                    say(problem)
        wait_for_everyone(self.accelerator)
        settings, run, stage = self.run.settings, self.run, self.stage
        self.learner = new_learner(stage, settings, run.shape, len(run.classes), self.seed, self.accelerator)
        self.objective = stage.objective(self.context)
        self.learner.memories = self.objective.memories
        set_products(settings.run.precision)
        if settings.run.compile and not self.objective.differentiates_twice:
            compiled(self.learner.network)
        saved = checkpoints.load_newest(self.folder)
        if saved is not None:
            self.learner.restore(saved[0], saved[1], self.team)
            self._lower_rate(rollbacks_in(saved[2], self.folder))
        elif stage.warm_start:
            _, weights, _ = checkpoints.load_average(run.checkpoints(stage.warm_start))
            self.learner.network.load_state_dict(weights)
        elif stage.role == "classifier" and self.learner.settings.start != "scratch":
            start_from_score(self.learner.network, self.context.networks)

    def _lower_rate(self, rollbacks: list[int]) -> None:
        self.rollbacks = rollbacks
        self.learner.lr_factor = LOWER ** len(rollbacks)

    def _go(self, stop: StopRequest, show_progress: bool) -> bool:
        """Whether it came to the last step."""
        learner, every = self.learner, self.run.settings.run
        total, stages = learner.settings.steps, [stage.name for stage in self.run.stages]
        which = f" ({stages.index(self.stage.name) + 1} of {len(stages)})" if len(stages) > 1 else ""
        title = f"{self.run.method.name} · {self.stage.name}{which}"
        show = show_progress and self.is_main and learner.step < total
        with bar(title, total, learner.step, show=show) as tick:
            for step in steps_of(self.stage, learner, self.objective, self.context, self.batches, self.seed):
                losses = finite_losses(self.stage.name, step)
                note, save = "", self.scheduled(step.number)
                if save or step.number % every.log_every == 0 or step.number == 1:
                    self._log(step.number, {**losses, "grad_norm": float(step.grad_norm), "lr": step.lr})
                    note = self._note(losses)
                tick(1, note)
                leave = stop.agreed(self.accelerator)
                if save or leave:
                    self._save(step.number)
                if self.is_main and not leave and self.previews.due(step.number, total, learner.average.module):
                    self.previews.draw(step.number, learner.average.module)
                    tick(0, self._note(losses))
                if leave and step.number < total:
                    raise Interrupted(
                        f"stopped after step {step.number} of {total} of the {self.stage.name} network, which is saved"
                    )
                if save and step.number < total and self.pause():
                    return False
        return True

    def _note(self, losses: Mapping[str, float]) -> str:
        """Beside the bar: the losses, and where the newest picture is."""
        note, latest = " ".join(f"{name} {value:.3f}" for name, value in losses.items()), self.previews.latest
        return note if latest is None else f"{note} {latest}"

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        if self.is_main:
            self.journal.append(self.stage.name, step, values)
            if self.on_step is not None:
                self.on_step(self.stage.name, step, values)

    def _save(self, step: int) -> None:
        """Everything that the next step depends on. Schedule, random states and the place in the data are
        functions of what state.json says."""
        state = self.learner.state(self.team)  # of all processes: each has memories of its own
        if not self.is_main:
            return
        about = {
            "network": self.stage.name,
            "seed": self.seed,
            "rollbacks": self.rollbacks,
            "lr_factor": self.learner.lr_factor,
            "settings": self.run.settings.model_dump(mode="json"),
        }
        with surfaced(
            f"cannot save step {step} in {self.folder}",
            "the checkpoints before it are untouched, and the same command continues from them",
        ):
            self.journal.sync()
            checkpoints.save(self.folder, step, state, about)
            self._thin_out()

    def _thin_out(self) -> None:
        every = self.run.settings.run
        checkpoints.thin_out(self.folder, every.keep, every.keep_every, self.scheduled)

    def _roll_back(self, divergence: Diverged) -> None:
        """To the newest scheduled checkpoint that was followed by a good step, with a lower learning rate.

        One that has already led here once is passed over, if there is another: it may hold the seed
        of the trouble. Whatever is newer goes, so that a killed process finds the same ones again.
        """
        step, before = divergence.step, self.rollbacks
        if self.is_main:
            good = [s for s in checkpoints.steps_saved(self.folder) if self.scheduled(s) and s < step - 1]
            untried = [s for s in good if s not in before]
            target = max(untried) if untried else min(good, default=0)
            with surfaced(f"cannot roll back in {self.folder}"):
                for newer in reversed(checkpoints.steps_saved(self.folder)):
                    if newer > target:
                        checkpoints.remove(checkpoints.path_of(self.folder, newer))
        wait_for_everyone(self.accelerator)
        self._resume()
        self._lower_rate([*before, self.learner.step])
        about = {"event": ROLLED_BACK, "to": self.learner.step, "lr_factor": self.learner.lr_factor}
        self._log(step, {**about, **divergence.values})
        if self.is_main:
            say(
                f"{self.run.path}, {self.stage.name}: step {step} diverged; back to step {self.learner.step}, "
                "learning rate halved"
            )


def steps_of(
    stage: Stage, learner: Learner, objective: Objective, context: Context, batches: Batches, seed: int
) -> Iterator[Step]:
    """A network's steps on its stage's batches and terms; what is logged and saved stays with the caller.

    Every step seeds torch anew, so a caller who cares for its own random state forks it.
    """

    def draw(step: int) -> tuple[Noisy, int]:
        rng = random_state(seed, stage.name, step)
        batch = batches.draw(stage, context, learner.settings.batch, rng)
        return batch, int(torch.randint(2**31, (1,), generator=rng))

    drawn = Ahead(draw, learner.settings.steps) if wants_ahead(learner.accelerator.device) else draw

    def batch_at(step: int) -> Noisy:
        batch, own = drawn(step)
        # Dropout, projections and chains draw from torch's global state: a stream of its own for each process.
        torch.manual_seed(own + learner.accelerator.process_index)
        return batch

    def losses_of(network: Callable[..., Tensor], batch: Noisy) -> Losses:
        return objective(network, batch, 1 - learner.step / learner.settings.steps)

    return learner.run(batch_at, losses_of)


def wants_ahead(device: torch.device) -> bool:
    """A CPU that trains has no time to draw meanwhile."""
    return device.type == "cuda"


def finite_losses(network: str, step: Step) -> dict[str, float]:
    """The step's losses as numbers, or Diverged."""
    losses = step.numbers()
    grad_norm = losses.pop("grad_norm")
    if not all(abs(value) < LARGEST for value in (*losses.values(), grad_norm)):  # also where it is not a number
        raise Diverged(network, step.number, losses, grad_norm)
    return losses


def new_learner(
    stage: Stage,
    settings: Settings,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    accelerator: Accelerator,
) -> Learner:
    """A fresh network whose first weights depend on the seed and the network's name alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random_state(seed, f"{stage.role}/weights", 0).initial_seed())
        network = stage.build(settings, shape, classes)
    if stage.role == "classifier" and stage.settings(settings).start == "score-frozen":
        freeze_encoder(network)
    return Learner(network, stage.settings(settings), accelerator, settings.run.precision)


def rollbacks_in(about: Mapping[str, Any], folder: object) -> list[int]:
    steps = about.get("rollbacks", [])
    if not isinstance(steps, list) or len(steps) > MOST_ROLLBACKS or not all(isinstance(s, int) for s in steps):
        raise SelfcalError(f"the newest checkpoint in {folder} tells of rollbacks {steps!r}, which cannot be")
    return steps
