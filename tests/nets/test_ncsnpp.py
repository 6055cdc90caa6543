"""The paper's U-Net: its size, its derivatives, its place among the settings."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from selfcal.core.settings import resolve
from selfcal.diffusion.noise import Noise
from selfcal.methods.reading import Reading
from selfcal.methods.terms.self_calibration import self_calibration
from selfcal.nets.blocks import Attention, double, halve
from selfcal.nets.builders import build_score, without_memory
from selfcal.nets.classifier import HEADS
from selfcal.nets.ncsnpp import Encoder, NCSNpp

SMALL = {"width": 8, "multipliers": (1, 2), "blocks": 1, "attention": (1,), "dropout": 0.0}


def stirred(network):
    """Weights as if trained: fresh blocks pass their input on, which would hide mistakes."""
    for p in network.parameters():
        nn.init.normal_(p, std=0.2)
    return network.double()


def held(network):
    """Numbers in the network, its fixed Fourier frequencies included, as the original counts."""
    return sum(t.numel() for t in network.state_dict().values())


def test_the_papers_parameter_counts():
    assert held(without_memory(NCSNpp)) == 62_758_915
    assert round(held(without_memory(lambda: NCSNpp(blocks=8))) / 1e6, 2) == 107.59
    assert round(held(without_memory(Encoder)) / 1e6, 1) == 25.3
    assert round(held(without_memory(lambda: Encoder(blocks=8))) / 1e6, 1) == 43.5
    settings = resolve("cifar10")
    assert held(without_memory(build_score, settings, (3, 32, 32), 10)) == 62_758_915


HEADED = [head(Encoder(1, **SMALL), 3) for head in HEADS.values()]


@pytest.mark.parametrize("network", [NCSNpp(1, **SMALL), *HEADED])
def test_twice_differentiable_to_finite_differences(network):
    network = stirred(network)
    sigma = torch.tensor([0.3, 2.0], dtype=torch.float64)
    x = torch.randn(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)

    def value(x):
        return network(x, sigma).flatten(1).tanh().mean(1)

    assert torch.autograd.gradcheck(value, x)
    assert torch.autograd.gradgradcheck(value, x)


@pytest.mark.parametrize("head", HEADS)
def test_every_parameter_of_a_classifier_learns_from_self_calibration(head):
    network = HEADS[head](Encoder(1, **SMALL), 3)
    for p in network.parameters():
        nn.init.normal_(p, std=0.1)
    batch = Noise(0.02, 10.0).perturb(torch.rand(4, 1, 8, 8) * 2 - 1, torch.tensor([0, 1, 2, -1]))
    self_calibration()(Reading(network, batch)).backward()
    unused = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert not unused


def test_examples_do_not_mix():
    network = stirred(NCSNpp(1, **SMALL))
    x, sigma = torch.randn(3, 1, 8, 8, dtype=torch.float64), torch.tensor([0.1, 1.0, 9.0], dtype=torch.float64)
    alone = torch.cat([network(x[i : i + 1], sigma[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(network(x, sigma), alone)


def test_the_class_matters_where_it_is_told():
    network = stirred(NCSNpp(1, classes=2, **SMALL))
    x, sigma = torch.randn(1, 1, 8, 8, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    outputs = [network(x, sigma, torch.tensor([y])) for y in (-1, 0, 1)]
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(outputs, outputs[1:] + outputs[:1], strict=True))


def test_resizing_keeps_means_and_is_each_others_transpose():
    flat = torch.ones(1, 2, 8, 8)
    torch.testing.assert_close(halve(flat)[..., 1:-1, 1:-1], torch.ones(1, 2, 2, 2))
    torch.testing.assert_close(double(flat)[..., 1:-1, 1:-1], torch.ones(1, 2, 14, 14))
    a, b = torch.randn(1, 2, 8, 8), torch.randn(1, 2, 4, 4)
    torch.testing.assert_close((halve(a) * b).sum(), (a * double(b)).sum() / 4)


def test_attention_is_torchs():
    attention = stirred(Attention(16))
    x = torch.randn(2, 16, 4, 4, dtype=torch.float64)
    pixels = attention.norm(x).flatten(2).transpose(1, 2)
    expected = attention.leave(
        nn.functional.scaled_dot_product_attention(
            *(f(pixels) for f in (attention.query, attention.key, attention.value))
        )
    )
    expected = (x + expected.transpose(1, 2).reshape(x.shape)) / 2**0.5
    torch.testing.assert_close(attention(x), expected)


def test_memory_and_layers_chosen_for_speed_change_no_number():
    """Channels last, and torch's own layers where no gradient is trained: the same values, gradients and inner ones."""
    plain, quick = (stirred(NCSNpp(3, **SMALL)) for _ in range(2))
    quick.load_state_dict(plain.state_dict())
    assert quick.channels_last
    plain.channels_last = False
    for layer in plain.modules():
        if hasattr(layer, "twice"):
            assert not layer.twice, "a score model is differentiated once"
            layer.twice = True
    x, sigma = torch.randn(2, 3, 8, 8, dtype=torch.float64), torch.tensor([0.1, 2.0], dtype=torch.float64)
    found = []
    for network in (plain, quick):
        at = x.clone().requires_grad_()
        out = network(at, sigma)
        (slope,) = torch.autograd.grad(out.square().sum(), at, create_graph=True)
        found.append([out, slope, *torch.autograd.grad(slope.square().sum(), list(network.parameters())[:6])])
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)
