"""On which images a guide is judged: those whose labels it never saw."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from selfcal.data.dataset import Dataset, no_test
from selfcal.diffusion.generator import Generator, Sampling
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.guide import Subject, ece_interval, guide_by_sigma, guide_split

COUNT = 60
X = torch.arange(2.0 * COUNT).view(COUNT, 2)
TRUTH = torch.arange(COUNT) % 2
TRUTH[::5] = UNLABELED  # of these nobody knows the class
LABELS = torch.where(torch.arange(COUNT) < 20, TRUTH, UNLABELED)


def oracle(x, sigma):
    """Knows the class of every point from its place in X, and is fairly sure of it."""
    place = (x[:, 0] / 2).round().long()
    return 2.0 * torch.nn.functional.one_hot(place % 2, 2)


def subject(data, labels=LABELS, classifier=oracle):
    networks = {"score": None} | ({} if classifier is None else {"classifier": classifier})
    generator = Generator(networks, Noise(0.01, 0.1), (2,), ("a", "b"), Sampling(1.0, "classifier", "heun", 2))
    return Subject(generator, data, labels, {})


PILE = Dataset("pile", X, TRUTH, ("a", "b"), tuple(map(str, range(COUNT))), *no_test(X))


def test_without_a_test_split_the_hidden_labels_that_are_known():
    """Neither those the guide learned from, nor those whose class nobody knows."""
    x, y, words = guide_split(subject(PILE))
    expected = [i for i in range(20, COUNT) if i % 5]
    assert x[:, 0].tolist() == [2.0 * i for i in expected]
    assert y.tolist() == [i % 2 for i in expected]
    assert words == "training images whose labels were hidden"


def test_a_test_split_is_taken_before_hidden_labels():
    data = replace(PILE, x_test=X[:4] + 0.5, y_test=torch.tensor([1, UNLABELED, 0, 1]))
    x, y, words = guide_split(subject(data))
    assert torch.equal(x, X[[0, 2, 3]] + 0.5)
    assert y.tolist() == [1, 0, 1]
    assert words == "test"


def test_where_nothing_was_hidden_there_is_nothing_to_judge_by():
    whole = replace(PILE, y=torch.arange(COUNT) % 2)
    assert len(guide_split(subject(whole, whole.y))[0]) == 0
    assert guide_by_sigma(subject(whole, whole.y)) == []


def test_the_guide_is_judged_on_that_split_alone():
    """Right on all of it but the first two, whatever it says of images it learned from."""

    def mistaken(x, sigma):
        place = (x[:, 0] / 2).round().long()
        return torch.where((place <= 22)[:, None], -1.0, 1.0) * oracle(x, sigma)

    table = guide_by_sigma(subject(PILE, classifier=mistaken))
    assert len(table) == 9
    assert table[0]["sigma"] == pytest.approx(0.01)
    right, sure = 1 - 2 / 32, torch.tensor([2.0, 0.0]).softmax(-1)[0].item()
    for row in table:
        assert row["accuracy"] == pytest.approx(right)
        assert row["confidence"] == pytest.approx(sure)
        assert row["ece"] == pytest.approx(abs(right - sure), abs=1e-6)
    low, high = ece_interval(subject(PILE, classifier=mistaken))["ece"]
    assert low < abs(right - sure) < high


def test_without_a_classifier_there_is_no_guide():
    assert guide_by_sigma(subject(PILE, classifier=None)) == []
