"""Every kind of network as a classifier and as a conditional model: what holds whatever it is made of."""

from __future__ import annotations

import pytest
import torch

from selfcal.core.settings import resolve
from selfcal.diffusion.guidance import classifier_free
from selfcal.diffusion.noise import Noise, Noisy
from selfcal.diffusion.scores import UNLABELED, like
from selfcal.methods.reading import Reading
from selfcal.nets.builders import build_classifier, build_conditional
from selfcal.nets.recipes import KINDS

OWN = [kind for kind in KINDS if not kind.startswith("adopted")]  # those are score models only
SHAPE, CLASSES = (1, 8, 8), 4


def stirred(build, kind):
    """Weights as if trained: fresh networks hardly depend on their input, which would hide mistakes."""
    small = {"network": kind, "width": 8, "blocks": 1, "multipliers": (1, 2), "attention": (4, 8), "dropout": 0.0}
    changes = {f"{role}.{key}": value for role in ("classifier", "conditional") for key, value in small.items()}
    network = build(resolve("images", changes), SHAPE, CLASSES)
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    return network


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", OWN)
def test_examples_of_a_batch_do_not_mix_in_a_classifier(kind, training):
    """Another image at another noise level beside them changes neither logits nor inner scores of the others."""
    network = stirred(build_classifier, kind).train(training)
    batch = Noise(0.1, 5.0).perturb(torch.rand(5, *SHAPE) * 2 - 1, torch.tensor([0, 1, 2, 3, UNLABELED]))
    x, sigma = batch.x.clone(), batch.sigma.clone()
    x[2], sigma[2] = torch.randn(SHAPE), 0.7 * sigma[2]
    before = Reading(network, batch)
    after = Reading(network, Noisy(batch.x0, batch.y, sigma, batch.z, x))
    others = torch.tensor([0, 1, 3, 4])
    for read in (lambda r: r.logits, lambda r: r.inner_score):
        a, b = read(before).detach(), read(after).detach()
        torch.testing.assert_close(a[others], b[others], rtol=1e-6, atol=1e-6)
        assert (a[2] - b[2]).abs().max() > 1e-4


@pytest.mark.parametrize("kind", OWN)
def test_no_class_is_another_answer_than_every_class(kind):
    """The null token, −1, has an embedding of its own; classifier-free guidance reads it."""
    network = stirred(build_conditional, kind).eval().requires_grad_(False)
    x, sigma = torch.randn(1, *SHAPE).repeat(CLASSES + 1, 1, 1, 1), torch.full((CLASSES + 1,), 0.7)
    y = torch.arange(-1, CLASSES)
    answers = network(x, sigma, y)
    for i in range(CLASSES + 1):
        for j in range(i):
            assert (answers[i] - answers[j]).abs().max() > 1e-3, (i - 1, j - 1)
    guided = classifier_free(network, y[1:], 0.4)(x[1:], sigma[1:])
    torch.testing.assert_close(guided, 1.4 * answers[1:] - 0.4 * answers[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", OWN)
def test_a_classifier_hears_of_the_noise(kind):
    """The same scaled input at two noise levels: only σ itself can tell them apart."""
    network = stirred(build_classifier, kind).eval().requires_grad_(False)
    sigma = torch.tensor([0.1, 2.0])
    total = (sigma**2 + network.sigma_data**2).sqrt()
    x = torch.randn(1, *SHAPE)
    logits = network(like(total, x.repeat(2, 1, 1, 1)) * x, sigma)
    assert (logits[0] - logits[1]).abs().max() > 1e-2
