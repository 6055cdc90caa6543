"""The loop: learning rate, average, clipping, and the shares of several processes."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator

from oracle import three_classes
from selfcal.core.randomness import random_state
from selfcal.core.settings import NetworkSettings
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import UNLABELED
from selfcal.training.learning_rate import learning_rate
from selfcal.training.loop import Learner, share


def test_learning_rate_warms_up_and_falls():
    s = NetworkSettings(lr=1.0, warmup=10, steps=100, decay=1.0)
    assert learning_rate(s, 0) == pytest.approx(0.1)
    assert learning_rate(s, 9) == pytest.approx(0.91)
    assert learning_rate(s, 99) == pytest.approx(0.01)
    assert learning_rate(NetworkSettings(lr=1.0, warmup=0, decay=0.0, steps=100), 50) == 1.0


def test_the_average_follows_the_ramped_formula():
    net = torch.nn.Linear(2, 2)
    learner = Learner(net, NetworkSettings(steps=30, ema=0.9, lr=0.1), Accelerator(cpu=True))
    mixture, expected = three_classes(), None

    def batch_at(step):
        x, y = mixture.sample(8, random_state(0, "b", step))
        return Noise(0.1, 1.0).perturb(x, y, random_state(0, "n", step))

    for done, _ in enumerate(learner.run(batch_at, lambda n, b: {"l": (1.0, n(b.x).square().mean())})):
        now = net.weight.detach().clone()
        # the first update copies, the n-th then uses min(ema, (1+n)/(10+n))
        decay = min(0.9, (1 + done) / (10 + done))
        expected = now if expected is None else decay * expected + (1 - decay) * now
    torch.testing.assert_close(learner.average.module.weight, expected)


def test_gradients_are_clipped_and_the_norm_reported_before():
    net = torch.nn.Linear(1, 1, bias=False)
    learner = Learner(net, NetworkSettings(steps=1, clip=0.5), Accelerator(cpu=True))
    batch = Noise(0.1, 1.0).perturb(torch.ones(4, 1), torch.zeros(4, dtype=torch.long))
    (step,) = learner.run(lambda s: batch, lambda n, b: {"l": (1000.0, n.weight.sum())})
    assert float(step.grad_norm) == pytest.approx(1000)
    assert float(net.weight.grad.norm()) == pytest.approx(0.5, rel=1e-3)


def test_shares_of_a_half_labelled_batch_are_half_labelled_and_complete():
    y = torch.tensor([0, 1, 2, 0, *[UNLABELED] * 4])
    batch = Noise(0.1, 1.0).perturb(torch.arange(8.0)[:, None], y)
    parts = [share(batch, rank, 2) for rank in range(2)]
    assert all(int((p.y != UNLABELED).sum()) == 2 for p in parts)
    assert sorted(torch.cat([p.x0 for p in parts]).flatten().tolist()) == list(range(8))
