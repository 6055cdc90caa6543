"""The paper's U-Net: its size, its derivatives, its place among the settings."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.core.settings import resolve
from selfcal.diffusion.noise import Noise
from selfcal.methods.reading import Reading
from selfcal.methods.terms.self_calibration import self_calibration
from selfcal.nets.blocks import Attention, double, halve
from selfcal.nets.builders import build_classifier, build_conditional, build_score, without_memory
from selfcal.nets.classifier import EncoderHead
from selfcal.nets.forms import EDM, VE, ScoreModel
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


@pytest.mark.parametrize("network", [NCSNpp(1, **SMALL), EncoderHead(Encoder(1, **SMALL), 3)])
def test_twice_differentiable_to_finite_differences(network):
    network = stirred(network)
    sigma = torch.tensor([0.3, 2.0], dtype=torch.float64)
    x = torch.randn(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)

    def value(x):
        return network(x, sigma).flatten(1).tanh().mean(1)

    assert torch.autograd.gradcheck(value, x)
    assert torch.autograd.gradgradcheck(value, x)


def test_every_parameter_of_a_classifier_learns_from_self_calibration():
    network = EncoderHead(Encoder(1, **SMALL), 3)
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


class Wave(nn.Module):
    def forward(self, x, level):
        return torch.sin(x + level[:, None])


def test_the_papers_form_is_the_network_over_sigma():
    x, sigma = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0.02, 0.1, 1.0, 10.0, 100.0], dtype=torch.float64)
    expected = torch.sin(x + sigma[:, None] / 2) / sigma[:, None]
    torch.testing.assert_close(ScoreModel(Wave(), VE())(x, sigma), expected)


@pytest.mark.parametrize("form", [EDM(0.5), VE()])
def test_each_form_weighs_the_networks_own_error_alike(form):
    """weight · ½‖σ s + z‖² = ½‖F − what F should be‖² at every σ."""
    sigma = torch.tensor([0.02, 0.5, 3.0, 100.0], dtype=torch.float64)
    c = form(sigma)
    torch.testing.assert_close(form.weight(sigma) * (c.out / sigma) ** 2, torch.ones(4, dtype=torch.float64))


def test_settings_choose_the_network():
    changes = [
        f"{role}.{key}"
        for role in ("score", "classifier", "conditional")
        for key in (
            "network=ncsnpp",
            "width=8",
            "blocks=1",
            "multipliers=1,2",
            "attention=4",
        )
    ]
    settings = resolve("images", changes)
    x, sigma = torch.randn(2, 3, 8, 8), torch.ones(2)
    assert build_score(settings, (3, 8, 8), 5)(x, sigma).shape == x.shape
    assert build_conditional(settings, (3, 8, 8), 5)(x, sigma, torch.tensor([-1, 4])).shape == x.shape
    classifier = build_classifier(settings, (3, 8, 8), 5)
    assert classifier(x, sigma).shape == (2, 5)
    assert [len(level.attention) for level in classifier.network.encoder.levels] == [0, 1]


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ((2,), [], "for points set network=mlp"),
        ((1, 6, 6), ["score.multipliers=1,2,2"], "cannot be halved 2 times"),
        ((1, 8, 8), ["score.multipliers=1,none"], r"score\.multipliers"),
        ((1, 8, 8), ["score.network=cnn"], "'mlp', 'ncsnpp'"),
    ],
)
def test_refusals(shape, changes, message):
    with pytest.raises(SelfcalError, match=message):
        build_score(resolve("images", ["score.network=ncsnpp", "score.width=8", *changes]), shape, 2)


def test_a_run_with_the_u_net_samples_and_continues(tmp_path):
    changes = {
        f"{role}.{key}": value
        for role in ("score", "classifier")
        for key, value in {"network": "ncsnpp", "width": 8, "blocks": 1, "multipliers": (1, 2), "form": "ve"}.items()
    }
    run = selfcal.train("digits", "cg-sc-all", "2/class", tmp_path / "r", steps=3, settings=changes)
    opened = selfcal.load(run.path)
    assert opened.sample(classes=[3], count=2, steps=2).x.isfinite().all()
    x = opened.data.x_test[:30]
    whole = opened.predict_proba(x)
    opened.config["settings"]["sampling"]["batch"] = 7  # large test sets do not pass through a U-Net in one go
    torch.testing.assert_close(selfcal.Run(run.path, opened.config).predict_proba(x), whole)


def test_a_network_that_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(SelfcalError, match="cannot be halved 4 times"):
        selfcal.train(
            "digits", "cg", "2/class", tmp_path / "r",
            settings={"classifier.network": "ncsnpp", "classifier.multipliers": (1, 1, 1, 1, 1)},
        )  # fmt: skip
    assert not (tmp_path / "r").exists()
