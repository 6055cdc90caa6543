"""The method table. A method is a row: which networks it trains, with which weighted terms, on
which part of the data, and how it guides. Nothing else in selfcal asks for a method's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import unknown
from selfcal.core.settings import NetworkSettings, Settings
from selfcal.data import Pool
from selfcal.diffusion.noise import Noise, Noisy
from selfcal.methods.terms import (
    ConditionalEstimate,
    Estimate,
    Reading,
    Term,
    cross_entropy,
    denoising,
    jacobian,
    likelihood_matching,
    naive_energy,
    recovery_likelihood,
    robust_cross_entropy,
    self_calibration,
)
from selfcal.methods.terms.self_calibration import as_in_the_pool, everyone, labelled_only
from selfcal.nets import build_classifier, build_conditional, build_score, form_of

CLASSIFIER_SCALES = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5)  # the paper's grid of λ_CG
FREE_SCALES = (0.0, 0.1, 0.2, 0.4)  # the paper's grid of λ_CFG, which is w: 0 is the plain conditional score


@dataclass(frozen=True)
class Context:
    """What the terms of a row may be built from."""

    settings: Settings
    label_fraction: float
    networks: Mapping[str, Any]  # those trained by earlier stages, by role, frozen

    @property
    def noise(self) -> Noise:
        return Noise(self.settings.noise.sigma_min, self.settings.noise.sigma_max)

    @classmethod
    def typical(cls) -> Context:
        """Default settings and few labels: enough to describe a row."""
        return cls(Settings(), 0.02, {"score": None, "classifier": None})


@dataclass(frozen=True)
class Weighted:
    """weight · term, and in words which examples the term sees."""

    weight: float
    term: Term
    sees: str


Draw = Callable[[Pool, int, torch.Generator | None], Tensor]
Terms = Callable[[Context], dict[str, Weighted]]
Read = Callable[[Context], Callable[[Any, Noisy], Any]]


@dataclass(frozen=True)
class Stage:
    """One training: which network, how it is built, which batches it gets, how a batch is read, what is minimised."""

    name: str  # its folder of checkpoints
    role: str  # "score", "classifier" or "conditional": its section of the settings, its key for guidance
    build: Callable[[Settings, tuple[int, ...], int], nn.Module]
    draw: Draw
    read: Read
    terms: Terms
    pseudo_labels: bool = False  # the labels are completed by the classifier trained before
    warm_start: str | None = None  # the stage whose weights it starts from

    def settings(self, settings: Settings) -> NetworkSettings:
        section: NetworkSettings = getattr(settings, self.role)
        return section


@dataclass(frozen=True)
class Method:
    name: str
    title: str
    stages: Callable[[Settings], tuple[Stage, ...]]
    guide: str  # a row of guidance.GUIDES
    scales: tuple[float, ...]  # the paper's grid of guidance strengths
    scale: float  # what is used unless one asks for another


# --- the terms of each row: a name, its weight, the term, who sees it --------------------------------


def dsm(c: Context, sees: str = "all", role: str = "score") -> dict[str, Weighted]:
    return {"dsm": Weighted(1.0, denoising(form_of(getattr(c.settings, role), c.settings).weight), sees)}


def ce(c: Context) -> dict[str, Weighted]:
    return {"ce": Weighted(1.0, cross_entropy(), "labelled")}


def ce_smoothed(c: Context) -> dict[str, Weighted]:
    return {"ce": Weighted(1.0, cross_entropy(c.settings.terms.ls_smoothing), "labelled")}


def ce_jr(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    return ce(c) | {"jr": Weighted(t.jr_weight, jacobian(t.jr_projections), "labelled")}


def ce_dlsm(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    term = likelihood_matching(c.networks["score"], t.dlsm_sigma_power, t.dlsm_per_dimension)
    return ce(c) | {"dlsm": Weighted(t.dlsm_weight, term, "labelled")}


def ce_jem(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    energy = (
        naive_energy(c.noise, t.jem_steps) if t.jem_naive else recovery_likelihood(c.noise, t.jem_levels, t.jem_steps)
    )
    return ce(c) | {"jem": Weighted(t.jem_weight, energy, "all")}


def ce_robust(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    grow_from = c.settings.noise.sigma_data if t.robust_grows else torch.inf
    return {
        "ce": Weighted(1.0, robust_cross_entropy(t.robust_epsilon, t.robust_steps, grow_from), "labelled, attacked")
    }


def ce_sc_labeled(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    return ce(c) | {"sc": Weighted(t.sc_weight, self_calibration(labelled_only, t.sc_per_dimension), "labelled")}


def ce_sc_all(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    weights = as_in_the_pool(c.label_fraction) if t.sc_rebalance else everyone
    return ce(c) | {"sc": Weighted(t.sc_weight, self_calibration(weights, t.sc_per_dimension), "all")}


# --- the stages -----------------------------------------------------------------------------------


def score() -> Stage:
    """s(x, σ) from all images, labels or not."""
    return Stage("score", "score", build_score, Pool.from_all, lambda c: Estimate, dsm)


def classifier(terms: Terms, draw: Draw = Pool.half_labelled) -> Stage:
    """p(y | x, σ)."""
    return Stage("classifier", "classifier", build_classifier, draw, lambda c: Reading, terms)


def pseudo_classifiers(s: Settings) -> tuple[Stage, ...]:
    """The self-calibrated classifier, trained on with its own confident labels, round by round."""
    rounds, before = [], "classifier"
    for number in range(1, s.terms.pl_rounds + 1):
        name = f"classifier-round-{number}"
        warm = before if s.terms.pl_warm_start else None
        build, read = build_classifier, (lambda c: Reading)
        rounds.append(Stage(name, "classifier", build, Pool.half_labelled, read, ce_sc_all, True, warm))
        before = name
    return tuple(rounds)


def conditional(draw: Draw, drop: bool, sees: str, pseudo_labels: bool = False) -> Stage:
    """s(x, σ, y), and with `drop` also s(x, σ, ∅)."""

    def read(c: Context) -> Callable[[Any, Noisy], ConditionalEstimate]:
        return partial(ConditionalEstimate, drop=c.settings.terms.cfg_drop if drop else 0.0)

    terms = partial(dsm, sees=sees, role="conditional")
    return Stage("conditional", "conditional", build_conditional, draw, read, terms, pseudo_labels)


# --- the table ------------------------------------------------------------------------------------


def guided(name: str, title: str, terms: Terms, draw: Draw = Pool.from_labelled) -> Method:
    """A row of the classifier-guidance family: an unconditional score, and a classifier that steers it."""
    return Method(name, title, lambda s: (score(), classifier(terms, draw)), "classifier", CLASSIFIER_SCALES, 1.0)


def free(name: str, title: str, stages: Callable[[Settings], tuple[Stage, ...]], guide: str, scales: tuple) -> Method:
    """A row of the classifier-free family: one network that is told the class."""
    return Method(name, title, stages, guide, scales, 0.0)


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        guided("cg", "classifier guidance", ce),
        guided("cg-ls", "with label smoothing", ce_smoothed),
        guided("cg-jr", "with Jacobian regularisation", ce_jr),
        guided("cg-dlsm", "with denoising likelihood score matching", ce_dlsm),
        guided("cg-jem", "as a joint energy-based model", ce_jem, Pool.half_labelled),
        guided("cg-robust", "with an adversarially robust classifier", ce_robust),
        guided("cg-sc-labeled", "self-calibrated on labelled images", ce_sc_labeled),
        guided("cg-sc-all", "self-calibrated on all images", ce_sc_all, Pool.half_labelled),
        free(
            "cond",
            "conditional model",
            lambda s: (conditional(Pool.from_labelled, drop=False, sees="labelled"),),
            "conditional",
            (0.0,),
        ),
        free(
            "cfg-labeled",
            "classifier-free guidance from labelled images",
            lambda s: (conditional(Pool.from_labelled, drop=True, sees="labelled"),),
            "classifier-free",
            FREE_SCALES,
        ),
        free(
            "cfg-all",
            "classifier-free guidance from all images",
            lambda s: (conditional(Pool.half_labelled, drop=True, sees="all, unlabelled without class"),),
            "classifier-free",
            FREE_SCALES,
        ),
        Method(
            "cg-sc-pl",
            "self-calibrated, then trained on with its own labels",
            lambda s: (score(), classifier(ce_sc_all), *pseudo_classifiers(s)),
            "classifier",
            CLASSIFIER_SCALES,
            1.0,
        ),
        free(
            "dpt",
            "conditional model on the self-calibrated classifier's labels",
            lambda s: (classifier(ce_sc_all), conditional(Pool.from_labelled, True, "pseudo-labelled", True)),
            "classifier-free",
            FREE_SCALES,
        ),
    )
}


BEYOND = ("cg-robust", "cg-sc-pl", "dpt")  # rows that the paper discusses or hopes for, but has no numbers of
GUIDED = tuple(m.name for m in METHODS.values() if m.guide == "classifier")  # the paper's CG family


def find(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
