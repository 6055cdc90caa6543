"""One pass of a network, seen by several terms."""

from __future__ import annotations

import pytest
import torch

from oracle import perturbed, three_classes
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import UNLABELED
from selfcal.methods.reading import LABELLED, ConditionalEstimate, Reading
from selfcal.methods.terms.cross_entropy import cross_entropy
from selfcal.methods.terms.self_calibration import self_calibration

MIXTURE = three_classes()


def test_labels_are_dropped_at_the_given_rate_and_the_unlabelled_stay_so():
    batch = Noise(0.1, 1.0).perturb(torch.zeros(20_000, 2), torch.arange(20_000) % 3 - 1)
    dropped = ConditionalEstimate(lambda x, s, y: x, batch, drop=0.1).told
    known = batch.y >= 0
    assert (dropped[~known] == UNLABELED).all()
    assert (dropped[known] == UNLABELED).float().mean().item() == pytest.approx(0.1, abs=0.01)
    kept = dropped >= 0
    assert torch.equal(dropped[kept], batch.y[kept])
    assert torch.equal(ConditionalEstimate(lambda x, s, y: x, batch).told, batch.y)


def test_all_terms_share_one_forward_pass():
    calls = []

    def classifier(x, s):
        calls.append(1)
        return MIXTURE.log_joint(x, s)

    reading = Reading(classifier, perturbed(MIXTURE, 8, (0.1, 5.0)))
    (cross_entropy()(reading) + self_calibration()(reading) + self_calibration()(reading.through(LABELLED))).item()
    assert len(calls) == 1
