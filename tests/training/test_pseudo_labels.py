"""Labels that a classifier gave: which are kept, how many are right, and the stages that learn from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import selfcal
from selfcal.data.pool import Pool
from selfcal.data.sources import load_data
from selfcal.diffusion.scores import UNLABELED
from selfcal.training.pseudo_labels import complete


class Judge:
    """Knows every example by its place in the data: sure of every third, wrong about every fifth."""

    def __init__(self, data):
        self.x, place = data.x, torch.arange(len(data.x))
        self.sure = place % 3 == 0
        self.guess = torch.where(place % 5 == 0, 1 - data.y, data.y)
        self.sigmas, self.batches = set(), []

    def __call__(self, x, sigma):
        self.sigmas |= set(sigma.tolist())
        self.batches.append(len(x))
        place = (x[:, None] == self.x).all(-1).int().argmax(1)
        confidence = torch.where(self.sure[place], 10.0, 1.5)  # as a difference of logits: 0.99995 and 0.82
        return confidence[:, None] * F.one_hot(self.guess[place], 2)


def test_pseudo_labels_keep_what_is_given_and_what_is_sure():
    """Over several batches, the last one smaller: which images get which label, and the share that is right."""
    data = load_data("moons")
    judge, place = Judge(data), torch.arange(len(data.y))
    seen = torch.where(place < 50, data.y, UNLABELED)
    y, report = complete(judge, data, Pool(seen), 0.01, 0.9, device=torch.device("cpu"))
    kept = (place >= 50) & judge.sure
    assert torch.equal(y[:50], data.y[:50]), "given labels stay"
    assert torch.equal((y != UNLABELED).nonzero()[:, 0], torch.cat([place[:50], place[kept]]))
    assert torch.equal(y[kept], judge.guess[kept])
    right = int((judge.guess[kept] == data.y[kept]).sum()) / int(kept.sum())
    assert report == {"unlabelled": 1950, "kept": int(kept.sum()), "right": pytest.approx(right), "threshold": 0.9}
    assert 0.75 < right < 0.85
    assert len(judge.batches) > 1
    assert sum(judge.batches) == 1950
    assert list(judge.sigmas) == [pytest.approx(0.01)]


def test_pseudo_labels_of_images_whose_class_nobody_knows():
    """They are kept like all others, but count neither as right nor as wrong."""
    data = load_data("moons")
    judge, place = Judge(data), torch.arange(len(data.y))
    truth = torch.where(place % 2 == 0, UNLABELED, data.y)
    seen = torch.where(place == 1, data.y, UNLABELED)
    y, report = complete(judge, replace(data, y=truth), Pool(seen), 0.01, 0.9, device=torch.device("cpu"))
    kept = (place != 1) & judge.sure
    assert torch.equal(y[kept], judge.guess[kept])
    known = kept & (truth != UNLABELED)
    assert report["right"] == pytest.approx(float((judge.guess[known] == truth[known]).double().mean()))
    nobody = replace(data, y=torch.full_like(truth, UNLABELED))
    assert complete(judge, nobody, Pool(seen), 0.01, 0.9, device=torch.device("cpu"))[1]["right"] is None


def test_where_everything_is_labelled_nothing_is_asked():
    data = load_data("moons")
    y, report = complete(None, data, Pool(data.y), 0.01, 0.9, device=torch.device("cpu"))
    assert torch.equal(y, data.y)
    assert report == {"unlabelled": 0, "kept": 0, "right": None, "threshold": 0.9}


@pytest.mark.parametrize("method", ["cg-sc-pl", "dpt"])
def test_pseudo_label_methods_report_what_they_kept(tmp_path, method):
    settings = {"classifier.width": 32, "conditional.width": 32, "score.width": 32, "terms.pl_threshold": 0.8}
    run = selfcal.train("moons", method, 0.05, tmp_path / "r", steps=300, settings=settings)
    (report,) = run.pseudo_labels.values()
    assert report["unlabelled"] == 1900
    assert report["kept"] > 500
    assert report["right"] > 0.8
    assert run.evaluate(count=200)["pseudo_labels"] == run.pseudo_labels


def test_rounds_of_pseudo_labels_are_stages(tmp_path):
    settings = {"classifier.width": 16, "score.width": 16, "terms.pl_rounds": 2}
    run = selfcal.train("moons", "cg-sc-pl", 0.05, tmp_path / "r", steps=20, settings=settings)
    assert [s.name for s in run.stages] == ["score", "classifier", "classifier-round-1", "classifier-round-2"]
    assert set(run.describe()["step"]) == {s.name for s in run.stages}
