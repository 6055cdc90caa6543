"""What the doctor measures, against what is known: exact mixtures, planted copies, planted wrong labels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from oracle import three_classes
from selfcal.data.dataset import Dataset, no_test
from selfcal.diffusion.generator import Generator, Sampling
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samples import Samples
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.diagnosis.copies import copies
from selfcal.evaluation.diagnosis.cross_fit import folds
from selfcal.evaluation.diagnosis.left_out import left_out, neighbour_weights, normalised, spreading, without_own
from selfcal.evaluation.diagnosis.pull import pull_by_sigma

MIXTURE = three_classes()


def in_double(function):
    """The mixture is exact in float64; images are float32."""
    return lambda x, sigma: function(x.double(), sigma.double()).float()


def generator(classifier=MIXTURE.log_joint):
    networks = {"score": in_double(MIXTURE.score), "classifier": in_double(classifier)}
    return Generator(networks, Noise(0.05, 5.0), (2,), ("a", "b", "c"), Sampling(1.0, "classifier", "heun", 2))


def points(count=2000):
    x, y = MIXTURE.sample(count, torch.Generator().manual_seed(0))
    return x.float(), y


def test_an_exact_guide_pulls_the_right_way():
    """Its inner score is the score, and guidance by the true class denoises better, most where classes overlap."""
    x, y = points()
    rows = pull_by_sigma(generator(), x, y, scale=1.0)
    for row in rows:
        assert row["inner_cosine"] == pytest.approx(1, abs=1e-4)
        assert row["inner_length"] == pytest.approx(1, abs=1e-4)
        assert row["gain"] > -0.01
    assert max(row["gain"] for row in rows) > 0.1
    doubled = pull_by_sigma(generator(), x, y, scale=2.0)
    assert all(d["gain"] == r["gain"] for d, r in zip(doubled, rows, strict=True)), "the gain is that of λ = 1"
    assert doubled[4]["guidance_length"] > rows[4]["guidance_length"]


def test_a_guide_that_takes_classes_for_others_pulls_away():
    x, y = points()
    rows = pull_by_sigma(generator(lambda x, sigma: MIXTURE.log_joint(x, sigma).roll(1, -1)), x, y, scale=1.0)
    assert min(row["gain"] for row in rows) < -0.1
    assert rows[4]["inner_cosine"] == pytest.approx(1, abs=1e-4), "the inner score asks for no class"


def test_leaving_a_label_out_equals_spreading_without_it():
    x, y = points(40)
    labelled = 12
    found = without_own(spreading(x, labelled)[:labelled], F.one_hot(y[:labelled], 3).double())
    s = normalised(neighbour_weights(x, 5))
    for i in range(labelled):
        rest = F.one_hot(y, 3).double() * (torch.arange(40) < labelled)[:, None]
        rest[i] = 0
        if rest[:, y[i]].sum() < 2:
            assert found[i].sum() == 0, "its class keeps too few others"
            continue
        mass = torch.linalg.solve(torch.eye(40).double() - 0.99 * s, rest)[i] / rest.sum(0).clamp(min=1)
        torch.testing.assert_close(found[i], mass / mass.sum())


def test_wrong_labels_are_found_and_right_ones_are_not():
    x, truth = points(600)
    labels = torch.where(torch.arange(600) < 90, truth, UNLABELED)
    data = Dataset("points", x, truth, ("a", "b", "c"), tuple(map(str, range(600))), *no_test(x))
    assert len(left_out(data, labels).suspects) <= 2, "three classes overlap a little"
    clear = MIXTURE.log_joint(x.double(), torch.full((600,), 1e-3).double()).softmax(-1).max(-1).values > 0.999
    wrong = (clear & (torch.arange(600) < 90)).nonzero()[:6, 0]
    labels[wrong] = (labels[wrong] + 1) % 3
    found = left_out(data, labels)
    suspects = {*found.places[found.suspects].tolist()}
    assert len({*wrong.tolist()} & suspects) >= 5
    assert len(suspects) <= 8
    assert found.agreement == pytest.approx(1 - 6 / 90, abs=0.05)
    places, classes = found.clear()
    assert len(places) > 200
    assert (labels[places] == UNLABELED).all()
    assert (truth[places] == classes).double().mean() > 0.97, "a label that spreads is nearly always right where clear"
    assert found.odds[found.suspects].tolist() == sorted(found.odds[found.suspects].tolist(), reverse=True)


def test_of_classes_with_two_labels_nothing_is_said():
    x, truth = points(60)
    labels = torch.full((60,), UNLABELED)
    for c in range(3):
        labels[(truth == c).nonzero()[:2, 0]] = c
    found = left_out(Dataset("p", x, truth, ("a", "b", "c"), tuple(map(str, range(60))), *no_test(x)), labels)
    assert found.agreement is None
    assert len(found.suspects) == 0


def test_copies_of_labelled_examples_are_told_from_new_ones():
    x, y = points(1200)
    labels = torch.where(torch.arange(1200) < 30, y, UNLABELED)
    data = Dataset("points", x, y, ("a", "b", "c"), tuple(map(str, range(1200))), *no_test(x))
    rng = torch.Generator().manual_seed(1)
    which = torch.randint(30, (400,), generator=rng)
    copied = Samples(x[which] + 1e-3 * torch.randn(400, 2, generator=rng), y[which], data.classes, {})
    found = copies(copied, data, labels)
    assert found.copied == 1
    assert found.coverage < 0.5 * found.real_coverage
    assert torch.equal(found.nearest, which)
    new, classes = MIXTURE.sample(400, rng)
    fresh = copies(Samples(new.float(), classes, data.classes, {}), data, labels)
    assert fresh.copied == pytest.approx(0.05, abs=0.05)
    assert fresh.nearness == pytest.approx(1, abs=0.2)
    assert fresh.coverage == pytest.approx(fresh.real_coverage, abs=0.05)
    whole = copies(copied, data, y)
    assert whole.copied is None, "where all is labelled nothing says how near is near"


def test_every_label_is_left_out_once_but_the_only_one_of_its_class():
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, UNLABELED, UNLABELED])
    parts = folds(labels, 3)
    assert parts.tolist() == [0, 1, 2, 0, 0, 1, -1, -1, -1]
