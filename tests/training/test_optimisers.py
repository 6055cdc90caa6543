"""Muon against its definition and another library's, and Adam's steps where there is no matrix."""

from __future__ import annotations

import copy

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import NetworkSettings
from selfcal.diffusion.noise import Noise
from selfcal.training.loop import Learner
from selfcal.training.optimisers import AS_ADAM, Muon, moments_of, orthogonal


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8)])
def test_a_matrix_keeps_its_directions_and_all_weigh_nearly_alike(shape):
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape)
    found = orthogonal(matrices)
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    within = u.mT @ found @ v.mT  # diagonal, where the singular vectors stayed
    values = within.diagonal(dim1=-2, dim2=-1)
    strong = s > 0.02 * s.amax(-1, keepdim=True)
    assert ((values[strong] > 0.6) & (values[strong] < 1.25)).all()
    torch.testing.assert_close(within, torch.diag_embed(values), atol=1e-4, rtol=0)


def test_weak_directions_are_not_lost_to_rounding_and_none_are_invented():
    torch.manual_seed(0)
    u, v = torch.linalg.qr(torch.randn(32, 32))[0], torch.linalg.qr(torch.randn(96, 32))[0]
    s = torch.cat([torch.logspace(0, -2, 8), torch.zeros(24)])
    values = (u.mT @ orthogonal((u * s @ v.mT)[None])[0] @ v).diagonal()
    assert (values[:8] > 0.6).all()
    assert (values[8:].abs() < 1e-2).all()


def test_steps_are_those_of_another_library():
    """torch's own Muon works in half precision, so the directions agree to some hundredths."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    torch.manual_seed(0)
    ours, gradients = nn.Parameter(torch.randn(12, 40)), torch.randn(5, 12, 40)
    theirs = nn.Parameter(ours.detach().clone())
    mine = Muon([ours], lr=0.01)
    other = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for g in gradients:
        before = ours.detach().clone(), theirs.detach().clone()
        ours.grad, theirs.grad = g.clone(), g.clone()
        mine.step()
        other.step()
        steps = (ours - before[0]).detach().flatten(), (theirs - before[1]).detach().flatten()
        assert float(torch.cosine_similarity(*steps, dim=0)) > 0.99
        assert float(steps[0].norm() / steps[1].norm()) == pytest.approx(1, abs=0.05)


def test_a_convolution_is_a_matrix_and_its_steps_are_as_long_as_adams():
    torch.manual_seed(0)
    conv = nn.Conv2d(8, 16, 3)
    before = conv.weight.detach().clone()
    conv.weight.grad, conv.bias.grad = 1e3 * torch.randn_like(conv.weight), None
    Muon([conv.weight, conv.bias], lr=1.0).step()
    assert float((conv.weight - before).detach().square().mean().sqrt()) == pytest.approx(AS_ADAM, rel=0.15)


def test_what_is_no_matrix_steps_as_in_adam():
    torch.manual_seed(0)
    ours = nn.Parameter(torch.randn(7))
    theirs = nn.Parameter(ours.detach().clone())
    mine, other = Muon([ours], lr=0.1, betas=(0.9, 0.99)), torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.99))
    for _ in range(6):
        ours.grad = torch.randn(7)
        theirs.grad = ours.grad.clone()
        mine.step()
        other.step()
    torch.testing.assert_close(ours, theirs)


def test_no_gradient_is_no_step_and_no_number_is_lost():
    frozen, still = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3, 3))
    still.grad = torch.zeros(3, 3)
    optimiser = Muon([frozen, still], lr=1.0)
    optimiser.step()
    assert torch.equal(frozen, torch.ones(3, 3))
    assert torch.equal(still, torch.ones(3, 3))
    assert frozen not in optimiser.state


def batch_at(step: int):
    rng = torch.Generator().manual_seed(step)
    return Noise(0.1, 1.0).perturb(torch.randn(8, 4, generator=rng), torch.zeros(8, dtype=torch.long), rng)


def learner() -> Learner:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 1))
    return Learner(net, NetworkSettings(steps=8, optimiser="muon"), Accelerator(cpu=True))


def losses(network, batch):
    return {"l": (1.0, (network(batch.x) - batch.x0.sum(1, keepdim=True)).square().mean())}


def test_it_goes_on_from_a_checkpoint_with_the_same_bits():
    whole, first, second = learner(), learner(), learner()
    for _ in whole.run(batch_at, losses):
        pass
    for step in first.run(batch_at, losses):
        if step.number == 3:
            break
    state = copy.deepcopy(first.state())
    assert {k.rsplit(".", 1)[1] for k in state["optimizer"] if k.startswith("0.weight")} == {"step", "exp_avg"}
    second.restore(3, state)
    for _ in second.run(batch_at, losses):
        pass
    for a, b in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert moments_of(second.optimiser, second.network[0].weight) == ("exp_avg",)


def test_a_checkpoint_of_adam_is_no_checkpoint_of_muon():
    adam = Learner(learner().network, NetworkSettings(steps=8), Accelerator(cpu=True))
    next(adam.run(batch_at, losses))
    state = copy.deepcopy(adam.state())
    del state["optimizer"]["0.weight.exp_avg"]
    with pytest.raises(SelfcalError, match="does not fit this network"):
        learner().restore(1, state)
