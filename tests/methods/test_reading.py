"""One pass of a network, seen by several terms."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from oracle import perturbed, three_classes
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import UNLABELED
from selfcal.methods.reading import (
    ALL,
    LABELLED,
    UNLABELLED,
    ConditionalEstimate,
    Reading,
    in_true_shares,
    thinned,
)
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


def half_hidden(count):
    """A batch whose first half is labelled, and a classifier that notes how many examples it is given."""
    batch = perturbed(MIXTURE, count, (0.1, 5.0))
    batch = dataclasses.replace(batch, y=torch.where(torch.arange(count) < count // 2, batch.y, UNLABELED))
    sizes = []

    def classifier(x, s):
        sizes.append(len(x))
        return MIXTURE.log_joint(x, s)

    return Reading(classifier, batch), sizes


def test_terms_that_see_different_examples_get_passes_of_their_own():
    reading, sizes = half_hidden(8)
    views = reading.views({"ce": LABELLED, "sc": UNLABELLED})
    whole = cross_entropy()(reading.through(LABELLED)), self_calibration()(reading.through(UNLABELLED))
    sizes.clear()
    parts = cross_entropy()(views["ce"]), self_calibration()(views["sc"])
    torch.testing.assert_close(parts, whole)
    assert sizes == [4, 4]


def test_a_pass_over_more_examples_serves_the_terms_that_see_fewer():
    reading, sizes = half_hidden(8)
    views = reading.views({"ce": LABELLED, "all": ALL, "online": UNLABELLED})
    (cross_entropy()(views["ce"]) + self_calibration()(views["all"]) + self_calibration()(views["online"])).item()
    assert sizes == [8]
    torch.testing.assert_close(cross_entropy()(views["ce"]), cross_entropy()(reading.through(LABELLED)))


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.8])
def test_thinning_leaves_the_pools_shares(fraction):
    """Half of a batch is labelled; of what is left after thinning, as many as in the pool."""
    y = torch.where(torch.arange(100_000) % 2 == 0, 1, UNLABELED)
    torch.manual_seed(0)
    kept = thinned(in_true_shares(fraction)).weights(y) > 0
    assert (y[kept] >= 0).float().mean().item() == pytest.approx(fraction, abs=0.01)
    assert kept[y < 0 if fraction < 0.5 else y >= 0].all()  # none is left out without need
