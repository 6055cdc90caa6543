"""Labels that a classifier gave: which are kept, how many are right, and the stages that learn from them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import selfcal
from selfcal.data import Pool, load_data
from selfcal.diffusion.scores import UNLABELED
from selfcal.training.pseudo_labels import complete


def test_pseudo_labels_keep_what_is_given_and_what_is_sure():
    data = load_data("moons")
    seen = torch.where(torch.arange(len(data.y)) < 50, data.y, UNLABELED)

    def judge(x, sigma):  # right on the left half, unsure on the right one
        sure = (x[:, 0] < 0).float()[:, None] * 20
        return sure * F.one_hot(data.y[-len(x) :], 2).float()

    y, report = complete(judge, data, Pool(seen), 0.01, 0.9, device=torch.device("cpu"))
    assert torch.equal(y[:50], data.y[:50])
    assert report["unlabelled"] == 1950
    assert 0 < report["kept"] < 1950
    assert report["kept"] == int((y[50:] >= 0).sum())


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
