"""What a row of the method table is made of: weighted terms, stages of training, guidance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from selfcal.core.errors import look_up
from selfcal.core.late import Tensor, torch
from selfcal.core.settings import NetworkSettings, Settings
from selfcal.data.pool import Pool
from selfcal.diffusion.noise import Noise, Noisy
from selfcal.methods.reading import LABELLED, Remembers, Sees, Term
from selfcal.methods.terms.dsm import fraction


@dataclass(frozen=True)
class Context:
    """What the terms of a row may be built from."""

    settings: Settings
    label_fraction: float
    networks: Mapping[str, Any]  # those trained by earlier stages, by role, frozen

    @property
    def noise(self) -> Noise:
        return Noise(self.settings.noise.sigma_min, self.settings.noise.sigma_max)

    def training_noise(self, role: str) -> Noise:
        """As the network of this role meets it in training."""
        net: NetworkSettings = getattr(self.settings, role)
        return replace(self.noise, centre=net.sigma_centre, spread=net.sigma_spread)

    @classmethod
    def typical(cls) -> Context:
        """Default settings and few labels: enough to describe a row."""
        return cls(Settings(), 0.02, {"score": None, "classifier": None})


@dataclass(frozen=True)
class Weighted:
    """weight · term, over the examples that it sees; with a decay, weight · left^decay of the training that is left."""

    weight: float
    term: Term
    sees: Sees
    score: Callable[[Any], Tensor] | None = None  # of a reading: the score that it trains, to log how much was learned
    decay: float = 0.0
    twice: bool = False  # the term differentiates a gradient, which torch.compile does not


Draw = Callable[[Pool, int, Any], Tensor]
"""Examples of the pool: how many, with which random state."""
Terms = Callable[[Context], dict[str, Weighted]]
Read = Callable[[Context], Callable[[Any, Noisy], Any]]
Losses = dict[str, tuple[float, Tensor]]
"""By name: (weight, loss)."""


@dataclass(frozen=True)
class Objective:
    """What a stage minimises: the terms of its row, ready for a network and a batch."""

    terms: Mapping[str, Weighted]
    read: Callable[[Any, Noisy], Any]

    @property
    def differentiates_twice(self) -> bool:
        return any(t.twice for t in self.terms.values())

    def __call__(self, network: Callable[..., Tensor], batch: Noisy, left: float = 1.0) -> Losses:
        """Each term's loss; and of those that train a score, the fraction of a zero score's loss, for the log.

        left: how much of the training is, from 1 to 0."""
        views, losses = self.read(network, batch).views({name: t.sees for name, t in self.terms.items()}), Losses()
        for name, t in self.terms.items():
            view = views[name]
            losses[name] = t.weight * left**t.decay, t.term(view)
            if t.score is not None:
                losses[f"{name}_fraction"] = 0.0, fraction(view, t.score(view)).detach()
        return losses

    @property
    def memories(self) -> dict[str, Remembers]:
        """The terms that carry something from step to step."""
        terms: dict[str, object] = {name: t.term for name, t in self.terms.items()}
        return {name: term for name, term in terms.items() if isinstance(term, Remembers)}


@dataclass(frozen=True)
class Stage:
    """One training: which network, how it is built, which batches it gets, how a batch is read, what is minimised."""

    name: str  # its folder of checkpoints
    role: str  # "score", "classifier" or "conditional": its section of the settings, its key for guidance
    build: Callable[[Settings, tuple[int, ...], int], torch.nn.Module]
    draw: Draw
    read: Read
    terms: Terms
    pseudo_labels: bool = False  # the labels are completed by the classifier trained before
    warm_start: str | None = None  # the stage whose weights it starts from

    def settings(self, settings: Settings) -> NetworkSettings:
        section: NetworkSettings = getattr(settings, self.role)
        return section

    def objective(self, context: Context) -> Objective:
        return Objective(self.terms(context), self.read(context))

    def sees(self, term: Weighted) -> str:
        """What the table says of a term: with completed labels, "labelled" means by whomever."""
        return "pseudo-labelled" if self.pseudo_labels and term.sees is LABELLED else str(term.sees)


@dataclass(frozen=True)
class Method:
    name: str
    title: str
    stages: Callable[[Settings], tuple[Stage, ...]]
    guide: str  # a row of guidance.GUIDES
    grids: Mapping[str, tuple[float, ...]]  # guidance strengths to choose from: "paper", its own, "wide" and "far"
    scale: float  # what is used unless one asks for another

    def grid(self, name: str) -> tuple[float, ...]:
        return look_up("grid of guidance scales", name, self.grids)
