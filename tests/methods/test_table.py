"""The rows of the method table: which examples they draw, what reaches their losses, who sees which term."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from oracle import perturbed, three_classes
from selfcal.core.settings import resolve
from selfcal.data.pool import Pool
from selfcal.diffusion.scores import UNLABELED
from selfcal.methods.reading import ConditionalEstimate, Estimate, Reading
from selfcal.methods.stage import Context
from selfcal.methods.table import METHODS
from selfcal.methods.terms.dsm import residual
from selfcal.methods.terms.robust import attack
from selfcal.nets.forms import EDM
from selfcal.training.stage import Batches

MIXTURE = three_classes()
FRACTION = 0.02
EXACT = {"score": MIXTURE.score, "classifier": MIXTURE.log_joint}
QUICK = {"terms.jem_steps": 2, "terms.robust_steps": 2, "noise.sigma_data": 0.5}


def context(**terms):
    settings = resolve("moons", QUICK | {f"terms.{name}": value for name, value in terms.items()})
    return Context(settings, FRACTION, EXACT)


def stage_of(method, name, c=None):
    return {s.name: s for s in METHODS[method].stages((c or context()).settings)}[name]


def half_labelled(count=32):
    """A noisy batch of the mixture; the second half's classes are hidden."""
    whole = perturbed(MIXTURE, count, (0.1, 5.0))
    return replace(whole, y=torch.where(torch.arange(count) < count // 2, whole.y, UNLABELED))


def told_the_class(x, sigma, y):
    known = MIXTURE.conditional_score(x, sigma, y.clamp(min=0))
    return torch.where((y == UNLABELED)[:, None], MIXTURE.score(x, sigma), known)


MODELS = {"score": MIXTURE.score, "classifier": MIXTURE.log_joint, "conditional": told_the_class}


def losses(method, name, batch, **terms):
    """What the row's stage makes of a batch and a perfect network, from the same random state each time."""
    c = context(**terms)
    stage = stage_of(method, name, c)
    torch.manual_seed(0)
    return stage.objective(c)(MODELS[stage.role], batch)


# --- settings ---------------------------------------------------------------------------------------

CALIBRATED = [
    ("cg-sc-labeled", "classifier"),
    ("cg-sc-all", "classifier"),
    ("cg-sc-pl", "classifier"),
    ("cg-sc-pl", "classifier-round-1"),
    ("dpt", "classifier"),
]


@pytest.mark.parametrize(("method", "stage"), CALIBRATED)
def test_sc_weight_reaches_the_loss(method, stage):
    batch = half_labelled()
    (_, plain), (weight, same) = (losses(method, stage, batch, sc_weight=w)["sc"] for w in (1.0, 7.5))
    assert weight == 7.5
    assert torch.equal(plain, same), "a weight changes no term"


@pytest.mark.parametrize(("method", "stage"), CALIBRATED)
def test_sc_per_dimension_reaches_the_loss(method, stage):
    batch = half_labelled()
    (_, summed), (_, mean) = (losses(method, stage, batch, sc_per_dimension=p)["sc"] for p in (False, True))
    torch.testing.assert_close(mean, summed / 2)


@pytest.mark.parametrize(("method", "stage"), CALIBRATED[1:])
def test_sc_rebalance_reaches_the_loss(method, stage):
    """With it, labelled examples count by their share of the pool; without, all alike."""
    batch = half_labelled()
    each = residual(batch, MIXTURE.score(batch.x, batch.sigma))
    expected = FRACTION * each[:16].mean() + (1 - FRACTION) * each[16:].mean()
    torch.testing.assert_close(losses(method, stage, batch, sc_rebalance=True)["sc"][1], expected)
    torch.testing.assert_close(losses(method, stage, batch, sc_rebalance=False)["sc"][1], each.mean())


def test_the_labelled_form_of_self_calibration_sees_no_other():
    batch = half_labelled()
    each = residual(batch, MIXTURE.score(batch.x, batch.sigma))
    for rebalance in (True, False):
        loss = losses("cg-sc-labeled", "classifier", batch, sc_rebalance=rebalance)["sc"][1]
        torch.testing.assert_close(loss, each[:16].mean())


def test_robust_grows_reaches_the_loss():
    """The attack's radius is ε, or ε·max(1, σ/σ_d)."""
    batch, sigma_data = half_labelled(), context().settings.noise.sigma_data
    assert (batch.sigma > sigma_data).any()
    found = {}
    for grows in (False, True):
        reach = 0.5 * ((batch.sigma / sigma_data).clamp(min=1) if grows else torch.ones_like(batch.sigma))
        moved = attack(MIXTURE.log_joint, batch.x, batch.sigma, batch.y, reach, 2)
        expected = F.cross_entropy(MIXTURE.log_joint(moved, batch.sigma)[:16], batch.y[:16])
        _, found[grows] = losses("cg-robust", "classifier", batch, robust_epsilon=0.5, robust_grows=grows)["ce"]
        torch.testing.assert_close(found[grows], expected)
    assert found[True] > found[False] + 1e-3


def labels_told(method, batch, drop):
    """What the conditional network of a row is told of a batch's classes."""
    told = []

    def model(x, sigma, y):
        told.append(y)
        return x

    c = context(cfg_drop=drop)
    torch.manual_seed(0)
    stage_of(method, "conditional", c).objective(c)(model, batch)
    return told[0]


@pytest.mark.parametrize("method", ["cfg-labeled", "cfg-all", "dpt"])
def test_cfg_drop_reaches_the_network(method):
    batch = half_labelled(20_000)
    labelled = batch.y != UNLABELED
    assert torch.equal(labels_told(method, batch, 0.0), batch.y)
    assert (labels_told(method, batch, 1.0) == UNLABELED).all()
    some = labels_told(method, batch, 0.3)
    assert (some[~labelled] == UNLABELED).all()
    assert (some[labelled] == UNLABELED).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(some[some != UNLABELED], batch.y[some != UNLABELED])


@pytest.mark.parametrize("method", ["cfg-labeled", "cfg-all", "dpt"])
def test_a_dropped_label_still_counts(method):
    """The null token is learned from what it is told nothing of: the loss is that of the unconditional score."""
    batch = half_labelled()
    sigma_data = context().settings.noise.sigma_data
    each = EDM(sigma_data).weight(batch.sigma) * residual(batch, MIXTURE.score(batch.x, batch.sigma))
    counted = each if method == "cfg-all" else each[:16]
    torch.testing.assert_close(losses(method, "conditional", batch, cfg_drop=1.0)["dsm"][1], counted.mean())


def test_the_plain_conditional_model_drops_nothing():
    batch = half_labelled()
    assert torch.equal(labels_told("cond", batch, 1.0), batch.y)


@pytest.mark.parametrize(
    ("method", "term", "setting"),
    [
        ("cg-jr", "jr", "jr_weight"),
        ("cg-dlsm", "dlsm", "dlsm_weight"),
        ("cg-jem", "jem", "jem_weight"),
        ("cg-sc-all", "sc", "sc_weight"),
    ],
)
def test_every_weight_is_a_setting(method, term, setting):
    assert losses(method, "classifier", half_labelled(), **{setting: 3.25})[term][0] == 3.25


@pytest.mark.parametrize(("decay", "at_a_quarter_left"), [(0.0, 3.0), (1.0, 0.75), (2.0, 0.1875)])
def test_self_calibration_may_count_less_and_less(decay, at_a_quarter_left):
    """Only it: the labels' weight stays."""
    c = context(sc_weight=3.0, sc_decay=decay)
    objective = stage_of("cg-sc-all", "classifier", c).objective(c)
    found, first = (objective(MIXTURE.log_joint, half_labelled(), left) for left in (0.25, 1.0))
    assert found["sc"][0] == pytest.approx(at_a_quarter_left)
    assert first["sc"][0] == 3.0
    assert found["ce"][0] == first["ce"][0] == 1.0


@pytest.mark.parametrize(
    ("method", "term", "changes"),
    [
        ("cg-ls", "ce", {"ls_smoothing": 0.4}),
        ("cg-jr", "jr", {"jr_projections": 3}),
        ("cg-dlsm", "dlsm", {"dlsm_sigma_power": 0.0}),
        ("cg-dlsm", "dlsm", {"dlsm_per_dimension": True}),
        ("cg-jem", "jem", {"jem_levels": 3}),
        ("cg-jem", "jem", {"jem_steps": 5}),
        ("cg-jem", "jem", {"jem_naive": True}),
        ("cg-robust", "ce", {"robust_epsilon": 2.0}),
        ("cg-robust", "ce", {"robust_steps": 1}),
        ("cg-sc-online", "online", {"online_sharpening": 0.5}),
    ],
)
def test_every_other_setting_of_a_term_reaches_it(method, term, changes):
    batch = half_labelled()
    before, after = (losses(method, "classifier", batch, **c)[term][1].item() for c in ({}, changes))
    assert abs(before - after) > 1e-6


def test_the_threshold_of_its_own_targets_reaches_them():
    """With sharpening so weak that the perfect classifier is hardly ever sure."""
    strict, lax = (
        losses("cg-sc-online", "classifier", half_labelled(), online_sharpening=0.02, online_threshold=t)["online"][1]
        for t in (0.99, 0.0)
    )
    assert strict.item() < 0.5 * lax.item()


def test_only_where_it_is_asked_for_are_its_own_targets_balanced():
    for balanced in (False, True):
        c = context(online_balanced=balanced)
        objective = stage_of("cg-sc-online", "classifier", c).objective(c)
        objective(MIXTURE.log_joint, half_labelled())
        assert ("shares" in objective.memories["online"].state()) == balanced


# --- draws ------------------------------------------------------------------------------------------

FROM_ALL, LABELLED_ONLY, HALF = "the whole pool", "labelled only", "half labelled"
GUIDED = {"score": FROM_ALL, "classifier": LABELLED_ONLY}
DRAWS = {
    "cg": GUIDED,
    "cg-ls": GUIDED,
    "cg-jr": GUIDED,
    "cg-dlsm": GUIDED,
    "cg-jem": GUIDED | {"classifier": HALF},
    "cg-robust": GUIDED,
    "cg-sc-labeled": GUIDED,
    "cg-sc-all": GUIDED | {"classifier": HALF},
    "cond": {"conditional": LABELLED_ONLY},
    "cfg-labeled": {"conditional": LABELLED_ONLY},
    "cfg-all": {"conditional": HALF},
    "cg-sc-pl": {"score": FROM_ALL, "classifier": HALF, "classifier-round-1": HALF},
    "dpt": {"classifier": HALF, "conditional": LABELLED_ONLY},
    "cg-sc-online": GUIDED | {"classifier": HALF},
    "dpt-online": {"classifier": HALF, "conditional": LABELLED_ONLY},
}


def test_the_draws_below_are_those_of_every_row():
    assert {m: [s.name for s in METHODS[m].stages(context().settings)] for m in METHODS} == {
        m: list(stages) for m, stages in DRAWS.items()
    }


@pytest.mark.parametrize(("method", "stage"), [(m, s) for m, stages in DRAWS.items() for s in stages])
def test_a_row_draws_what_it_should(method, stage):
    """From 40 examples, 4 of them labelled; an example is known by its own number."""
    y = torch.where(torch.arange(40) % 10 == 0, torch.arange(40) // 10 % 2, UNLABELED)
    batches = Batches(torch.arange(40.0)[:, None], Pool(y))
    batch = batches.draw(stage_of(method, stage), context(), 400, torch.Generator().manual_seed(0))
    drawn = batch.x0[:, 0].long()
    assert torch.equal(batch.y, y[drawn]), "each example comes with its own label"
    labelled, everyone = set(range(0, 40, 10)), set(range(40))
    share = (batch.y != UNLABELED).float().mean().item()
    if DRAWS[method][stage] == LABELLED_ONLY:
        assert set(drawn.tolist()) == labelled
    elif DRAWS[method][stage] == HALF:
        assert set(drawn.tolist()) == everyone
        assert share == 0.5
    else:
        assert set(drawn.tolist()) == everyone
        assert share == pytest.approx(0.1, abs=0.05)


def test_a_batch_carries_the_settings_noise_and_the_random_state_decides():
    batches, c = Batches(torch.zeros(40, 1), Pool(torch.zeros(40, dtype=torch.long))), context()
    first, again, other = (
        batches.draw(stage_of("cg", "score"), c, 5000, torch.Generator().manual_seed(s)) for s in (0, 0, 1)
    )
    noise = c.settings.noise
    assert float(first.sigma.min()) == pytest.approx(noise.sigma_min, rel=0.02)
    assert float(first.sigma.max()) == pytest.approx(noise.sigma_max, rel=0.02)
    torch.testing.assert_close(first.x, first.x0 + first.sigma[:, None] * first.z)
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)


# --- who sees a term --------------------------------------------------------------------------------


def every_term(**terms):
    """(method, stage, term) of the whole table."""
    c = context(**terms)
    return [(m, s.name, term) for m in METHODS for s in METHODS[m].stages(c.settings) for term in s.terms(c)]


def elsewhere(batch, j):
    """The same batch, example j aside: another image, at another noise level."""
    x0, z, sigma, x = batch.x0.clone(), batch.z.clone(), batch.sigma.clone(), batch.x.clone()
    x0[j] += 1.5
    z[j] += 0.7
    sigma[j] *= 1.9
    x[j] = x0[j] + sigma[j] * z[j]
    return replace(batch, x0=x0, z=z, sigma=sigma, x=x)


NAIVE = {"jem_naive": True}


@pytest.mark.parametrize(
    ("method", "stage", "term", "terms"),
    [(*row, {}) for row in every_term()] + [("cg-jem", "classifier", "jem", NAIVE)],
)
def test_a_term_sees_exactly_whom_it_says(method, stage, term, terms):
    """Its value moves with an example that it counts, and does not with one that it does not."""
    batch, c = half_labelled(), context(**terms)
    weights = stage_of(method, stage, c).terms(c)[term].sees.weights(batch.y)
    before = losses(method, stage, batch, **terms)[term][1]
    for j in (1, 19):  # one labelled, one not
        after = losses(method, stage, elsewhere(batch, j), **terms)[term][1]
        if weights[j]:
            assert abs(before - after) > 1e-6, f"{method} {term}: example {j} is counted"
        else:
            assert torch.equal(before, after), f"{method} {term}: example {j} is not counted"


@pytest.mark.parametrize(("method", "stage", "term"), every_term())
def test_what_the_table_says_is_what_the_mask_does(method, stage, term):
    sees = stage_of(method, stage).terms(context())[term].sees
    y = torch.tensor([0, UNLABELED, 1, UNLABELED])
    counted = sees.weights(y) > 0
    masks = {"all": [True] * 4, "labelled": [True, False, True, False], "unlabelled": [False, True, False, True]}
    assert counted.tolist() == masks[str(sees)]


def test_each_role_is_read_in_its_own_way():
    views = {"score": Estimate, "classifier": Reading, "conditional": ConditionalEstimate}
    for method in METHODS.values():
        for stage in method.stages(context().settings):
            assert type(stage.read(context())(MODELS[stage.role], half_labelled())) is views[stage.role]
