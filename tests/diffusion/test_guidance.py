"""With logits = log p_σ(x, y) of a mixture, every guidance must equal exact truth."""

from __future__ import annotations

import pytest
import torch

from oracle import perturbed, three_classes
from selfcal.core.errors import SelfcalError, look_up
from selfcal.diffusion.guidance import (
    GUIDES,
    classifier_free,
    classifier_guided,
    conditional,
    inner_conditional,
    inner_unconditional,
    likelihood_score,
)
from selfcal.diffusion.scores import UNLABELED

MIXTURE = three_classes()
BATCH = perturbed(MIXTURE, 200, (0.05, 5.0))


def test_classifier_guidance_is_the_conditional_score():
    guided = classifier_guided(MIXTURE.score, MIXTURE.log_joint, BATCH.y)
    truth = MIXTURE.conditional_score(BATCH.x, BATCH.sigma, BATCH.y)
    torch.testing.assert_close(guided(BATCH.x, BATCH.sigma), truth)


def test_scale_multiplies_the_classifier_only():
    plain = MIXTURE.score(BATCH.x, BATCH.sigma)
    truth = MIXTURE.conditional_score(BATCH.x, BATCH.sigma, BATCH.y)
    guided = classifier_guided(MIXTURE.score, MIXTURE.log_joint, BATCH.y, scale=2.5)
    torch.testing.assert_close(guided(BATCH.x, BATCH.sigma), plain + 2.5 * (truth - plain))


def test_classifier_only_generation_reads_both_scores_from_the_logits():
    torch.testing.assert_close(
        inner_unconditional(MIXTURE.log_joint)(BATCH.x, BATCH.sigma), MIXTURE.score(BATCH.x, BATCH.sigma)
    )
    torch.testing.assert_close(
        inner_conditional(MIXTURE.log_joint, BATCH.y)(BATCH.x, BATCH.sigma),
        MIXTURE.conditional_score(BATCH.x, BATCH.sigma, BATCH.y),
    )


def test_the_gradient_survives_a_hopeless_class():
    """log(softmax + 1e-8) would return zero here, exactly where guidance is needed most."""
    x = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
    sigma, y = torch.tensor([0.01], dtype=torch.float64), torch.tensor([2])
    assert MIXTURE.log_joint(x, sigma).softmax(-1)[0, 2] < 1e-8
    truth = MIXTURE.conditional_score(x, sigma, y) - MIXTURE.score(x, sigma)
    torch.testing.assert_close(likelihood_score(MIXTURE.log_joint, x, sigma, y), truth)
    assert truth.norm() > 1


def test_guidance_works_inside_no_grad_and_leaves_no_graph():
    with torch.no_grad():
        out = classifier_guided(MIXTURE.score, MIXTURE.log_joint, BATCH.y)(BATCH.x, BATCH.sigma)
    assert not out.requires_grad


def test_unknown_guide_names_the_nearest():
    with pytest.raises(SelfcalError, match="did you mean 'classifier-only'"):
        look_up("guide", "classifer-only", GUIDES)


def conditional_truth(x, sigma, y):
    """The exact conditional score, and the unconditional one for the null token."""
    known = MIXTURE.conditional_score(x, sigma, y.clamp(min=0))
    return torch.where((y == UNLABELED)[:, None], MIXTURE.score(x, sigma), known)


def test_classifier_free_guidance():
    batch = perturbed(MIXTURE, 64, (0.1, 5.0))
    wanted = MIXTURE.conditional_score(batch.x, batch.sigma, batch.y)
    plain = MIXTURE.score(batch.x, batch.sigma)
    at_zero = classifier_free(conditional_truth, batch.y, 0.0)(batch.x, batch.sigma)
    assert torch.equal(at_zero, conditional(conditional_truth, batch.y)(batch.x, batch.sigma))
    torch.testing.assert_close(at_zero, wanted)
    guided = classifier_free(conditional_truth, batch.y, 0.4)(batch.x, batch.sigma)
    torch.testing.assert_close(guided, 1.4 * wanted - 0.4 * plain)


def test_the_null_token_is_what_classifier_free_guidance_asks_with():
    told = []

    def model(x, sigma, y):
        told.append(y.tolist())
        return conditional_truth(x, sigma, y)

    y = torch.tensor([2, 0, 1])
    score = classifier_free(model, y, 0.4)
    score(BATCH.x[:3], BATCH.sigma[:3])
    assert told == [[2, 0, 1], [UNLABELED] * 3]
    told.clear()
    classifier_free(model, y, 0.0)(BATCH.x[:3], BATCH.sigma[:3])
    assert told == [[2, 0, 1]], "without a weight the second answer is not asked for"
