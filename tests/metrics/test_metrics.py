"""Metrics against other libraries' answers and known truths."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import scipy.linalg
import torch
from prdc import compute_prdc
from torchmetrics.functional.classification import multiclass_calibration_error

from selfcal.core.errors import SelfcalError
from selfcal.metrics import (
    check_comparable,
    density_coverage,
    expected_calibration_error,
    fid,
    generation_accuracy,
    inception_score,
    kid,
    per_class,
    precision_recall,
    reliability,
)
from selfcal.metrics.interval import jackknife


def textbook_fid(real, fake):
    real, fake = real.double().numpy(), fake.double().numpy()
    a, b = np.cov(real, rowvar=False), np.cov(fake, rowvar=False)
    root = scipy.linalg.sqrtm(a @ b)
    return float(((real.mean(0) - fake.mean(0)) ** 2).sum() + np.trace(a + b - 2 * root.real))


@pytest.mark.parametrize(("n", "m", "d"), [(300, 250, 20), (20, 20, 20), (15, 40, 60), (40, 15, 60)])
def test_fid_equals_the_textbook(n, m, d):
    torch.manual_seed(n)
    mix = torch.randn(d, d)
    real, fake = torch.randn(n, d) @ mix, torch.randn(m, d) @ mix.T + 0.3
    assert fid(real, fake) == pytest.approx(textbook_fid(real, fake), rel=1e-4)


def test_fid_of_a_set_with_itself_is_zero():
    x = torch.randn(100, 30)
    assert fid(x, x) == pytest.approx(0, abs=1e-6)
    assert fid(x[:10], x[:10]) == pytest.approx(0, abs=1e-6)
    assert fid(torch.ones(5, 3), torch.ones(9, 3)) == 0
    assert fid(torch.ones(5, 3), torch.zeros(9, 3)) == pytest.approx(3)


def test_fid_known_answer():
    """N(0, I) against N(m, 4 I): ‖m‖² + d (2 − 1)²."""
    rng = torch.Generator().manual_seed(0)
    real = torch.randn(200_000, 3, generator=rng)
    fake = 2 * torch.randn(200_000, 3, generator=rng) + 1
    assert fid(real, fake) == pytest.approx(3 + 3, rel=0.02)


@pytest.mark.parametrize("k", [3, 5])
def test_density_coverage_equals_prdc(k):
    torch.manual_seed(k)
    real, fake = torch.randn(1500, 8), 0.8 * torch.randn(700, 8) + 0.1
    theirs = compute_prdc(real.double().numpy(), fake.double().numpy(), nearest_k=k)
    density, coverage = density_coverage(real, fake, k)
    assert density == pytest.approx(theirs["density"], rel=1e-9)
    assert coverage == pytest.approx(theirs["coverage"], rel=1e-9)


def test_mode_collapse_lowers_coverage_not_density():
    torch.manual_seed(0)
    real = torch.randn(1000, 4)
    whole, _ = density_coverage(real, torch.randn(1000, 4))
    density, coverage = density_coverage(real, real[:20].repeat(50, 1) + 0.01 * torch.randn(1000, 4))
    assert density > 0.9 * whole
    assert coverage < 0.3


def test_coverage_of_the_same_distribution():
    torch.manual_seed(0)
    values = [density_coverage(torch.randn(1000, 6), torch.randn(1000, 6), k=3)[1] for _ in range(5)]
    assert np.mean(values) == pytest.approx(1 - 2**-3, abs=0.02)


def test_ece_equals_torchmetrics_and_closes_the_last_bin():
    torch.manual_seed(0)
    probabilities, labels = (3 * torch.randn(4000, 10)).softmax(-1), torch.randint(10, (4000,))
    theirs = multiclass_calibration_error(probabilities, labels, num_classes=10, n_bins=20)
    assert expected_calibration_error(probabilities, labels) == pytest.approx(float(theirs), abs=1e-6)
    certain = torch.eye(2)
    assert expected_calibration_error(certain, torch.tensor([0, 0])) == pytest.approx(0.5)
    assert reliability(certain, torch.tensor([0, 0]))[-1].count == 2


def test_ece_of_a_calibrated_predictor_is_small():
    torch.manual_seed(0)
    probabilities = (2 * torch.randn(100_000, 4)).softmax(-1)
    labels = torch.multinomial(probabilities, 1)[:, 0]
    assert expected_calibration_error(probabilities, labels) < 0.01
    assert expected_calibration_error(probabilities**3 / (probabilities**3).sum(-1, keepdim=True), labels) > 0.1


def test_per_class_sees_a_missing_and_a_swapped_class():
    torch.manual_seed(0)
    y = torch.arange(400) % 2
    real, fake = torch.randn(400, 3) + 6 * y[:, None], torch.randn(400, 3) + 6 * y[:, None]
    assert fid(real, fake) < 1
    assert per_class(fid, real, y, fake, y) < 1
    assert per_class(fid, real, y, fake, 1 - y) > 50  # the same pile, wrong labels: only intra-FID sees it
    with pytest.raises(SelfcalError, match="class 1 has no generated"):
        per_class(fid, real, y, fake[y == 0], y[y == 0])
    mean = (fid(real[y == 0], fake[y == 0]) + fid(real[y == 1], fake[y == 1])) / 2
    assert per_class(fid, real, y, fake, y) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fid(torch.zeros(1, 3), torch.zeros(5, 3)), "real has 1 example"),
        (lambda: fid(torch.zeros(5, 3), torch.full((5, 3), torch.nan)), "fake features hold NaN"),
        (lambda: fid(torch.zeros(5, 3), torch.zeros(5, 4)), "different dimensions"),
        (lambda: density_coverage(torch.zeros(5, 3), torch.zeros(5, 3)), "too few for k = 5"),
        (lambda: expected_calibration_error(torch.zeros(0, 3), torch.zeros(0)), "at least one"),
        (
            lambda: per_class(
                density_coverage,
                torch.zeros(9, 2),
                torch.arange(9) // 5,
                torch.zeros(9, 2),
                torch.arange(9) // 5,
            ),
            "class 0: 5 real examples are too few",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(SelfcalError, match=message):
        call()


def test_generation_accuracy():
    assert generation_accuracy(torch.eye(4), torch.tensor([0, 1, 2, 0])) == 0.75


def tied_points(count, seed):
    """Whole numbers on a small grid: many equal distances and duplicates, exact in every arithmetic."""
    return torch.randint(0, 4, (count, 3), generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("case", ["random", "tied", "duplicated"])
def test_all_four_equal_prdc(case, k):
    """Also where points coincide: prdc is exact on whole numbers."""
    if case == "random":
        real, fake = torch.randn(1200, 16), torch.randn(900, 16) * 1.1
    elif case == "tied":
        real, fake = tied_points(700, 1), tied_points(600, 2)
    else:
        real = tied_points(40, 1).repeat(20, 1)
        fake = real[:300].clone()
    theirs = compute_prdc(real.double().numpy(), fake.double().numpy(), nearest_k=k)
    density, coverage = density_coverage(real, fake, k)
    precision, recall = precision_recall(real, fake, k)
    assert {"density": density, "coverage": coverage, "precision": precision, "recall": recall} == pytest.approx(
        theirs, rel=1e-12
    )


def test_duplicates_of_real_numbers_where_prdc_rounds():
    """k+1 copies of a point: its ball has radius 0 and holds nothing. prdc's distances round to about 1e-7 there."""
    copies = torch.randn(50, 32).double().repeat(7, 1) * 100
    assert density_coverage(copies, copies, k=5) == (0.0, 0.0)
    brute = (copies[:, None] - copies[None]).square().sum(-1)
    assert int((brute == 0).sum()) == 50 * 49


def test_far_from_the_origin_nothing_is_lost():
    """Features with a large common offset: the matrix product alone would lose all digits."""
    torch.manual_seed(0)
    real, fake = torch.randn(400, 4).double(), torch.randn(300, 4).double()
    near = density_coverage(real, fake)
    assert density_coverage(real + 1e6, fake + 1e6) == pytest.approx(near, rel=1e-9)


def test_kid_against_its_definition():
    torch.manual_seed(0)
    real, fake = torch.randn(60, 5).double(), torch.randn(50, 5).double() + 0.5

    def kernel(a, b):
        return (a @ b.T / 5 + 1) ** 3

    rr, ff = kernel(real, real), kernel(fake, fake)
    expected = (rr.sum() - rr.diag().sum()) / (60 * 59) + (ff.sum() - ff.diag().sum()) / (50 * 49)
    expected -= 2 * kernel(real, fake).mean()
    assert kid(real, fake) == pytest.approx(float(expected), rel=1e-10)
    halves = [kid(*torch.randn(2, 400, 5)) for _ in range(20)]
    assert abs(np.mean(halves)) < 4 * np.std(halves) / 20**0.5, "unbiased: zero on average for one distribution"


def test_inception_score_known_answers():
    assert inception_score(torch.eye(4).repeat(5, 1), splits=5) == pytest.approx((4.0, 0.0))
    assert inception_score(torch.full((20, 4), 0.25))[0] == pytest.approx(1.0)
    p = torch.tensor([[0.9, 0.1], [0.3, 0.7]]).double()
    marginal = p.mean(0)
    expected = (p * (p / marginal).log()).sum(1).mean().exp()
    assert inception_score(p, splits=1)[0] == pytest.approx(float(expected))
    with pytest.raises(SelfcalError, match="3 predictions cannot be cut into 10"):
        inception_score(torch.eye(3))


def test_fid_equals_torchmetrics():
    from torchmetrics.image.fid import _compute_fid

    torch.manual_seed(0)
    for n, d in ((400, 30), (30, 30), (20, 50)):
        real, fake = torch.randn(n, d).double() * 2, torch.randn(n, d).double() + 0.2
        theirs = _compute_fid(real.mean(0), real.T.cov(), fake.mean(0), fake.T.cov())
        assert fid(real, fake) == pytest.approx(float(theirs), rel=1e-4)


def test_the_jackknife_interval_covers_the_truth_about_as_often_as_it_says():
    """Mean of 200 normals: the interval must hold 0 in roughly 95 % of 400 trials."""
    torch.manual_seed(0)
    hits = 0
    for _ in range(400):
        x = torch.randn(200)
        (interval,) = jackknife(lambda mask, x=x: {"m": float(x[mask].mean())}, {"m": float(x.mean())}, 200).values()
        hits += interval[0] < 0 < interval[1]
    assert 0.92 < hits / 400 < 0.98


def test_the_jackknife_passes_over_what_could_not_be_measured():
    assert jackknife(lambda mask: {"m": None}, {"m": None}, 20) == {"m": None}


def test_results_that_were_not_measured_alike_are_refused():
    row = {"samples": 1800, "features_sha256": "a", "reference_sha256": "b", "k": 5}
    check_comparable([row, dict(row)])
    with pytest.raises(SelfcalError, match="different numbers of samples"):
        check_comparable([row, row | {"samples": 5000}])
    with pytest.raises(SelfcalError, match="different feature extractors"):
        check_comparable([row, row | {"features_sha256": "c"}])


def test_fid_of_degenerate_features():
    """Every column twice doubles the distance; a constant column adds nothing; a matrix root would be singular."""
    torch.manual_seed(0)
    real, fake = torch.randn(80, 6), torch.randn(60, 6) + 0.5
    assert fid(real.repeat(1, 2), fake.repeat(1, 2)) == pytest.approx(2 * fid(real, fake), rel=1e-6)
    padded = [torch.cat([x, torch.full((len(x), 3), 7.0)], 1) for x in (real, fake)]
    assert fid(*padded) == pytest.approx(fid(real, fake), rel=1e-6)


@pytest.mark.parametrize("shape", [(700, 5), (300, 20), (90, 30)])
def test_the_kernels_mean_over_pairs_however_it_is_summed(shape):
    """By moments where D² < N, by pairs otherwise: both are the plain double sum."""
    from selfcal.metrics.kid import mean_of_pairs

    x = torch.randn(*shape).double() + 0.3
    k = (x @ x.T / shape[1] + 1) ** 3
    plain = (k.sum() - k.diagonal().sum()) / (len(x) * (len(x) - 1))
    assert float(mean_of_pairs(x)) == pytest.approx(float(plain), rel=1e-12)


def test_the_mean_over_subsets_is_unbiased(monkeypatch):
    kid = importlib.import_module("selfcal.metrics.kid")  # the function of that name stands before it
    monkeypatch.setattr(kid, "SUBSET", 50)
    monkeypatch.setattr(kid, "MOST_PAIRED", 900)
    x = torch.randn(1000, 40).double()
    assert kid.is_for_subsets(x)
    assert not kid.is_for_subsets(x[:, :30]), "there moments are exact and cheap"
    assert not kid.is_for_subsets(x[:900])
    k = (x @ x.T / 40 + 1) ** 3
    within = float((k.sum() - k.diagonal().sum()) / (1000 * 999))
    error = float(k.std()) / (20 * 50 * 49 / 2) ** 0.5  # were all pairs independent
    assert abs(float(kid.mean_of_pairs_in_subsets(x)) - within) < 6 * error
    assert float(kid.mean_of_pairs_in_subsets(x)) != within


@pytest.mark.parametrize("case", ["far away", "duplicates", "whole numbers", "huge"])
def test_radii_are_exact_however_roughly_candidates_were_found(case, monkeypatch):
    """Across tiles, where float32 cannot tell candidates apart, and where it overflows."""
    from selfcal.metrics import prdc

    monkeypatch.setattr(prdc, "TILE", 37)
    x = torch.randn(100, 6).double()
    x = {
        "far away": x + 1e5,
        "duplicates": x[torch.arange(100) % 30],
        "whole numbers": (3 * x).round(),
        "huge": x * 1e25,
    }[case]
    distances = (x[:, None] - x[None]).square().sum(-1).fill_diagonal_(torch.inf)
    seen = []
    radii = prdc.Balls(x, 5, tick=seen.append).squared_radius
    assert torch.equal(radii, distances.kthvalue(5, dim=1).values)
    assert sum(seen) == prdc.pairs_of(100)
