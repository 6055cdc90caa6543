"""The method table. A method is a row: which networks it trains, with which weighted terms, on
which part of the data, and how it guides. Nothing else in selfcal asks for a method's name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from selfcal.core.errors import look_up
from selfcal.core.settings import Settings
from selfcal.data.pool import Pool
from selfcal.diffusion.noise import Noisy
from selfcal.methods.reading import (
    ALL,
    LABELLED,
    UNLABELLED,
    ConditionalEstimate,
    Estimate,
    Reading,
    Sees,
    in_true_shares,
    thinned,
)
from selfcal.methods.stage import Context, Draw, Method, Stage, Terms, Weighted
from selfcal.methods.terms.cross_entropy import cross_entropy
from selfcal.methods.terms.dlsm import likelihood_matching
from selfcal.methods.terms.dsm import denoising
from selfcal.methods.terms.jacobian import jacobian
from selfcal.methods.terms.jem import naive_energy
from selfcal.methods.terms.online import own_targets
from selfcal.methods.terms.recovery import recovery_likelihood
from selfcal.methods.terms.robust import robust_cross_entropy
from selfcal.methods.terms.self_calibration import self_calibration
from selfcal.nets.builders import build_classifier, build_conditional, build_score, form_of

if TYPE_CHECKING:
    from selfcal.nets.forms import Form

CLASSIFIER_GRIDS = {
    "paper": (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5),  # λ_CG
    "wide": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0),  # every method chose the paper's largest
    "far": (2.0, 3.0, 4.0, 6.0, 9.0),  # on images of 28×28 several chose 6
}
FREE_GRIDS = {
    "paper": (0.0, 0.1, 0.2, 0.4),  # λ_CFG, which is w: 0 is the plain conditional score
    "wide": (0.0, 0.2, 0.5, 1.0, 2.0),
    "far": (0.0, 0.5, 1.0, 2.0, 4.0),
}
Grids = Mapping[str, tuple[float, ...]]
NO_GRIDS: Grids = dict.fromkeys(CLASSIFIER_GRIDS, (0.0,))  # nothing to scale


# --- the terms of each row: a name, its weight, the term, who sees it --------------------------------


def dsm(c: Context, sees: Sees = ALL, role: str = "score") -> dict[str, Weighted]:
    @cache
    def form() -> Form:  # on first use: to describe a row, no network's code is needed
        return form_of(getattr(c.settings, role), c.settings)

    term = denoising(lambda sigma: form().weight(sigma))
    return {"dsm": Weighted(1.0, term, sees, lambda estimate: estimate.score)}


def ce(c: Context) -> dict[str, Weighted]:
    return {"ce": Weighted(1.0, cross_entropy(), LABELLED)}


def ce_smoothed(c: Context) -> dict[str, Weighted]:
    return {"ce": Weighted(1.0, cross_entropy(c.settings.terms.ls_smoothing), LABELLED)}


def ce_jr(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    return ce(c) | {"jr": Weighted(t.jr_weight, jacobian(t.jr_projections), LABELLED, twice=True)}


def ce_dlsm(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    term = likelihood_matching(c.networks["score"], t.dlsm_sigma_power, t.dlsm_per_dimension)
    return ce(c) | {"dlsm": Weighted(t.dlsm_weight, term, LABELLED, twice=True)}


def ce_jem(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    energy = (
        naive_energy(c.noise, t.jem_steps) if t.jem_naive else recovery_likelihood(c.noise, t.jem_levels, t.jem_steps)
    )
    return ce(c) | {"jem": Weighted(t.jem_weight, energy, ALL)}


def ce_robust(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    grow_from = c.settings.noise.sigma_data if t.robust_grows else math.inf
    return {"ce": Weighted(1.0, robust_cross_entropy(t.robust_epsilon, t.robust_steps, grow_from), LABELLED)}


def sc(c: Context, sees: Sees) -> dict[str, Weighted]:
    t = c.settings.terms
    term = self_calibration(t.sc_per_dimension, t.sc_lift, c.settings.noise.sigma_data)
    return {"sc": Weighted(t.sc_weight, term, sees, lambda r: r.inner_score, t.sc_decay, twice=True)}


def ce_sc_labeled(c: Context) -> dict[str, Weighted]:
    return ce(c) | sc(c, LABELLED)


def ce_sc_all(c: Context) -> dict[str, Weighted]:
    t, shares = c.settings.terms, in_true_shares(c.label_fraction)
    return ce(c) | sc(c, ALL if not t.sc_rebalance else thinned(shares) if t.sc_thinned else shares)


def ce_sc_online(c: Context) -> dict[str, Weighted]:
    t = c.settings.terms
    term = own_targets(c.noise.sigma_min, t.online_threshold, t.online_sharpening, t.online_balanced)
    return ce_sc_all(c) | {"online": Weighted(t.online_weight, term, UNLABELLED)}


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


def conditional(draw: Draw, drop: bool, sees: Sees, pseudo_labels: bool = False) -> Stage:
    """s(x, σ, y), and with `drop` also s(x, σ, ∅)."""

    def read(c: Context) -> Callable[[Any, Noisy], ConditionalEstimate]:
        return partial(ConditionalEstimate, drop=c.settings.terms.cfg_drop if drop else 0.0)

    terms = partial(dsm, sees=sees, role="conditional")
    return Stage("conditional", "conditional", build_conditional, draw, read, terms, pseudo_labels)


# --- the table ------------------------------------------------------------------------------------


def guided(name: str, title: str, terms: Terms, draw: Draw = Pool.from_labelled) -> Method:
    """A row of the classifier-guidance family: an unconditional score, and a classifier that steers it."""
    return Method(name, title, lambda s: (score(), classifier(terms, draw)), "classifier", CLASSIFIER_GRIDS, 1.0)


def free(name: str, title: str, stages: Callable[[Settings], tuple[Stage, ...]], guide: str, grids: Grids) -> Method:
    """A row of the classifier-free family: one network that is told the class."""
    return Method(name, title, stages, guide, grids, 0.0)


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
            lambda s: (conditional(Pool.from_labelled, drop=False, sees=LABELLED),),
            "conditional",
            NO_GRIDS,
        ),
        free(
            "cfg-labeled",
            "classifier-free guidance from labelled images",
            lambda s: (conditional(Pool.from_labelled, drop=True, sees=LABELLED),),
            "classifier-free",
            FREE_GRIDS,
        ),
        free(
            "cfg-all",
            "classifier-free guidance from all images",
            lambda s: (conditional(Pool.half_labelled, drop=True, sees=ALL),),
            "classifier-free",
            FREE_GRIDS,
        ),
        Method(
            "cg-sc-pl",
            "self-calibrated, then trained on with its own labels",
            lambda s: (score(), classifier(ce_sc_all), *pseudo_classifiers(s)),
            "classifier",
            CLASSIFIER_GRIDS,
            1.0,
        ),
        free(
            "dpt",
            "conditional model on the self-calibrated classifier's labels",
            lambda s: (classifier(ce_sc_all), conditional(Pool.from_labelled, True, LABELLED, True)),
            "classifier-free",
            FREE_GRIDS,
        ),
        guided("cg-sc-online", "self-calibrated, teaching itself", ce_sc_online, Pool.half_labelled),
        free(
            "dpt-online",
            "conditional model on the self-teaching classifier's labels",
            lambda s: (classifier(ce_sc_online), conditional(Pool.from_labelled, True, LABELLED, True)),
            "classifier-free",
            FREE_GRIDS,
        ),
    )
}


BEYOND = (
    "cg-robust",
    "cg-sc-pl",
    "dpt",
    "cg-sc-online",
    "dpt-online",
)  # rows that the paper discusses or hopes for, but has no numbers of
GUIDED = tuple(
    m.name for m in METHODS.values() if m.guide == "classifier"
)  # the CG family, those beyond the paper included


def find(name: str) -> Method:
    return look_up("method", name, METHODS)
