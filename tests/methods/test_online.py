"""The classifier's own targets: sharpened, where it is sure of the clean image, for the noisy one."""

from __future__ import annotations

from dataclasses import replace

import pytest
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


def unlabelled_batch(seed, size=256):
    """Of the mixture, classes hidden."""
    return replace(perturbed(MIXTURE, size, (0.1, 5.0), seed), y=torch.full((size,), UNLABELED))


def one_sided(x, sigma):
    """A classifier that says the first class far too often."""
    return unsure(x, sigma) + torch.tensor([2.0, 0.0, 0.0], dtype=x.dtype)


def clean_opinions(classifier, batch, sigma=0.8):
    return classifier(batch.x0, torch.full((len(batch.x0),), sigma, dtype=torch.float64))


def test_where_classes_are_equally_many_targets_become_so():
    term = own_targets(0.8, threshold=0.0, sharpening=1.0, balanced=True)
    for seed in range(400):
        term(Reading(one_sided, unlabelled_batch(seed, 64)))
    batch = unlabelled_batch(400, 2000)
    before = clean_opinions(one_sided, batch).softmax(-1).mean(0)
    after = term.targets(Reading(one_sided, batch)).mean(0)
    assert before.max() - before.min() > 0.5
    assert after.max() - after.min() < 0.1


def test_an_offset_follows_the_share_that_a_class_had():
    """b ← b − η log(K p̄): none at first, and after a step that of the first batch."""
    first, second = unlabelled_batch(0), unlabelled_batch(1)
    term = own_targets(0.8, threshold=0.9, sharpening=2.0, balanced=True)
    plain = own_targets(0.8, threshold=0.9, sharpening=2.0)(Reading(one_sided, first))
    torch.testing.assert_close(term(Reading(one_sided, first)), plain)
    offsets = -0.02 * (3 * clean_opinions(one_sided, first).softmax(-1).mean(0)).log()
    q = (2 * (clean_opinions(one_sided, second) + offsets)).softmax(-1)
    torch.testing.assert_close(term.targets(Reading(one_sided, second)), q)


def test_a_memory_that_is_put_back_gives_the_same_targets():
    going_on, put_back, fresh = (own_targets(0.8, balanced=True) for _ in range(3))
    for seed in range(4):
        going_on(Reading(one_sided, unlabelled_batch(seed, 32)))
    put_back.restore({name: value.clone() for name, value in going_on.state().items()})
    fresh.restore(own_targets(0.8, balanced=True).state())
    values = [term(Reading(one_sided, unlabelled_batch(4, 32))).item() for term in (going_on, put_back, fresh)]
    assert values[0] == values[1] != values[2]
    put_back.restore({})  # back to before it had seen anything
    assert not put_back.state()


@pytest.mark.parametrize("spoiled", [torch.zeros(2), torch.zeros(3, 1), torch.full((3,), torch.nan)])
def test_a_memory_that_cannot_be_its_own_is_refused(spoiled):
    good = {"shares": torch.ones(3) / 3, "offsets": torch.zeros(3), "steps": torch.tensor(1)}
    own_targets(0.8, balanced=True).restore(good)
    with pytest.raises(ValueError, match="one number for each class"):
        own_targets(0.8, balanced=True).restore(good | {"offsets": spoiled})


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
