"""The method table. A method is a row: which networks it trains, with which weighted terms, on
which part of the data, and how it guides. Nothing else in selfcal asks for a method's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfcal.config import NetworkSettings, Settings
from selfcal.data import Pool
from selfcal.errors import unknown
from selfcal.nets import build_classifier, build_score
from selfcal.noise import Noisy
from selfcal.objectives import Estimate, Reading, Term, cross_entropy, denoising, self_calibration
from selfcal.objectives.self_calibration import as_in_the_pool, everyone, labelled_only


@dataclass(frozen=True)
class Context:
    """What the terms of a row may be built from."""

    settings: Settings
    label_fraction: float
    networks: Mapping[str, nn.Module]  # those trained by earlier stages, frozen

    @classmethod
    def typical(cls) -> Context:
        """Default settings and few labels: enough to describe a row."""
        return cls(Settings(), 0.02, {})


@dataclass(frozen=True)
class Weighted:
    """weight · term, and in words which examples the term sees."""

    weight: float
    term: Term
    sees: str


Terms = Callable[[Context], dict[str, Weighted]]


@dataclass(frozen=True)
class Stage:
    """One network: how it is built, which batches it gets, how a batch is read, what is minimised."""

    network: str  # its name, which is also its section of the settings
    build: Callable[[Settings, tuple[int, ...], int], nn.Module]
    draw: Callable[[Pool, int, torch.Generator | None], Tensor]
    read: Callable[[nn.Module, Noisy], Reading | Estimate]
    terms: Terms

    def settings(self, settings: Settings) -> NetworkSettings:
        section: NetworkSettings = getattr(settings, self.network)
        return section


@dataclass(frozen=True)
class Method:
    name: str
    title: str
    stages: tuple[Stage, ...]
    guide: str  # a row of guidance.GUIDES


# --- the terms of each row ------------------------------------------------------------------------


def dsm(c: Context) -> dict[str, Weighted]:
    return {"dsm": Weighted(1.0, denoising(c.settings.noise.sigma_data), "all")}


def ce(c: Context) -> dict[str, Weighted]:
    return {"ce": Weighted(1.0, cross_entropy(), "labelled")}


def ce_sc_labeled(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    return ce(c) | {"sc": Weighted(t.sc_weight, self_calibration(labelled_only, t.sc_per_dimension), "labelled")}


def ce_sc_all(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    weights = as_in_the_pool(c.label_fraction) if t.sc_rebalance else everyone
    return ce(c) | {"sc": Weighted(t.sc_weight, self_calibration(weights, t.sc_per_dimension), "all")}


# --- the stages -----------------------------------------------------------------------------------


def unconditional_score() -> Stage:
    """s(x, σ) from all images, labels or not."""
    return Stage("score", lambda s, shape, _: build_score(s, shape), Pool.from_all, Estimate, dsm)


def classifier(terms: Terms, draw: Callable[[Pool, int, torch.Generator | None], Tensor]) -> Stage:
    """p(y | x, σ)."""
    return Stage("classifier", build_classifier, draw, Reading, terms)


def guided(name: str, title: str, terms: Terms, draw: Callable = Pool.half_labelled) -> Method:
    """A row of the classifier-guidance family: an unconditional score, and a classifier that steers it."""
    return Method(name, title, (unconditional_score(), classifier(terms, draw)), "classifier")


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        guided("cg", "classifier guidance", ce, Pool.from_labelled),
        guided("cg-sc-labeled", "self-calibrated on labelled images", ce_sc_labeled, Pool.from_labelled),
        guided("cg-sc-all", "self-calibrated on all images", ce_sc_all),
    )
}


def find(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
