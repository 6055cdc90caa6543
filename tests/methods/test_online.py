"""The classifier's own targets: sharpened, where it is sure of the clean image, for the noisy one."""

from __future__ import annotations

from dataclasses import replace

import torch

from oracle import perturbed, three_classes
from selfcal.diffusion.scores import UNLABELED
from selfcal.methods.reading import LABELLED, UNLABELLED, Reading
from selfcal.methods.terms.dsm import fraction
from selfcal.methods.terms.online import own_targets

MIXTURE = three_classes()


def unsure(x, sigma):
    return 0.2 * MIXTURE.log_joint(x, sigma)


def test_targets_are_the_sharpened_clean_opinion_of_the_sure():
    batch = perturbed(MIXTURE, 64, (0.1, 5.0))
    hidden = torch.arange(64) >= 16
    batch = replace(batch, y=torch.where(hidden, UNLABELED, batch.y))
    value = own_targets(0.8, threshold=0.9, sharpening=2.0)(Reading(unsure, batch).through(UNLABELLED))
    q = (2 * unsure(batch.x0, torch.full((64,), 0.8, dtype=torch.float64))).softmax(-1)
    sure = q.max(-1).values >= 0.9
    assert 5 < (sure & hidden).sum() < 48
    each = -(q * unsure(batch.x, batch.sigma).log_softmax(-1)).sum(-1)
    torch.testing.assert_close(value, (each * sure)[hidden].mean())


def test_no_gradient_flows_into_the_targets():
    batch = replace(perturbed(MIXTURE, 16, (0.5, 2.0)), y=torch.full((16,), UNLABELED))
    tilt = torch.zeros((), dtype=torch.float64, requires_grad=True)
    slopes = []
    for frozen in (False, True):

        def classifier(x, sigma, frozen=frozen):
            clean = bool((sigma == 0.3).all())
            t = tilt.detach() if frozen and clean else tilt
            return MIXTURE.log_joint(x, sigma) + t * torch.nn.functional.pad(x[:, :1].tanh(), (0, 2))

        value = own_targets(0.3, threshold=0.0)(Reading(classifier, batch).through(UNLABELLED))
        slopes.append(torch.autograd.grad(value, tilt)[0])
    assert slopes[0].abs() > 1e-4
    torch.testing.assert_close(slopes[0], slopes[1])


def test_a_batch_without_unlabelled_examples_is_worth_nothing():
    batch = perturbed(MIXTURE, 8, (0.1, 5.0))
    assert own_targets(0.3)(Reading(MIXTURE.log_joint, batch).through(UNLABELLED)).item() == 0.0


def test_the_fraction_learned_is_one_for_a_zero_score_and_small_for_the_exact_one():
    batch = perturbed(MIXTURE, 4000, (0.5, 5.0))
    view = Reading(MIXTURE.log_joint, batch).through(LABELLED)
    nothing = fraction(view, torch.zeros_like(batch.x))
    torch.testing.assert_close(nothing, batch.z.square().sum() / batch.z.numel(), msg="1, but for the noise drawn")
    exact = fraction(view, MIXTURE.score(batch.x, batch.sigma)).item()
    assert 0 < exact < fraction(view, 0.5 * MIXTURE.score(batch.x, batch.sigma)).item() < 1
