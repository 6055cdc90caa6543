"""The energy head is its equation, patches are pixels, and only the energy head's inner score can learn quickly."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.core.settings import resolve
from selfcal.nets.builders import build_classifier, build_score
from selfcal.nets.classifier import Classifier, EnergyHead
from selfcal.nets.ncsnpp import Encoder
from selfcal.training.beginning import encoder_of, start_from_score

SMALL = {"width": 8, "multipliers": (1, 2), "blocks": 2, "attention": (), "dropout": 0.0, "fourier_scale": 0.2}
NETWORK = {"network": "ncsnpp", "width": 8, "multipliers": "1,2", "blocks": 1, "attention": "", "fourier_scale": 0.2}


def settings(**changes):
    both = {f"{role}.{key}": value for role in ("score", "classifier") for key, value in NETWORK.items()}
    return resolve("images", both | changes)


def test_the_energy_is_a_gaussian_and_sums_over_all_resolutions_and_pixels():
    head = EnergyHead(Encoder(1, **SMALL), 3)
    for weights in head.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    classifier, x, sigma = Classifier(head, 0.5), torch.randn(2, 1, 8, 8), torch.tensor([0.1, 3.0])
    scaled = x / (sigma**2 + 0.25).sqrt()[:, None, None, None]
    features, inner, condition = head.encoder(scaled, sigma)
    assert [features[i].shape[-1] for i in head.encoder.ends] == [8, 4], "the last features of each resolution"
    gain = head.gain(condition).exp()
    energy, start = head.leave.bias.expand(2, 3), 0
    for h in (features[head.encoder.ends[0]], features[head.encoder.ends[1]], inner):
        weights = head.leave.weight[:, start : start + h.shape[1]]
        each_pixel = F.silu(h) * gain[:, start : start + h.shape[1], None, None]
        energy = energy + torch.einsum("yc,bchw->by", weights, each_pixel)
        start += h.shape[1]
    gaussian = -x.square().flatten(1).sum(1) / (2 * (sigma**2 + 0.25))
    torch.testing.assert_close(classifier(x, sigma), energy + gaussian[:, None], rtol=1e-4, atol=1e-4)


def test_a_fresh_energy_head_starts_at_the_best_linear_inner_score():
    classifier = build_classifier(settings(), (1, 8, 8), 3)
    x, sigma = torch.randn(4, 1, 8, 8, requires_grad=True), torch.tensor([0.1, 0.5, 2.0, 9.0])
    (score,) = torch.autograd.grad(classifier(x, sigma).logsumexp(-1).sum(), x)
    linear = -x / (sigma**2 + 0.25)[:, None, None, None]
    assert (score - linear).norm() < 0.2 * linear.norm()


def test_patches_are_squares_of_pixels():
    plain = settings(
        **{"score.patch": 2, "classifier.patch": 2, "score.multipliers": "1", "classifier.multipliers": "1"}
    )
    score, classifier = build_score(plain, (1, 8, 8), 3), build_classifier(plain, (1, 8, 8), 3)
    x, sigma = torch.randn(2, 1, 8, 8), torch.tensor([0.3, 2.0])
    inside = score.network.network(F.pixel_unshuffle(x, 2), sigma)
    assert inside.shape == (2, 4, 4, 4)
    torch.testing.assert_close(score.network(x, sigma), F.pixel_shuffle(inside, 2))
    assert classifier(x, sigma).shape == (2, 3)
    with pytest.raises(SelfcalError, match="cannot be cut into patches of 3"):
        build_score(settings(**{"score.patch": 3}), (1, 8, 8), 3)
    with pytest.raises(SelfcalError, match="cut into patches of 4 and then halved 2 times"):
        build_score(settings(**{"score.patch": 4, "score.multipliers": "1,2,2"}), (1, 8, 8), 3)


def test_a_classifier_may_halve_what_a_denoiser_could_not_double_again():
    changes = {"classifier.multipliers": "1,2,2", "score.multipliers": "1,2,2"}
    assert build_classifier(settings(**changes), (1, 6, 6), 3)(torch.randn(1, 1, 6, 6), torch.ones(1)).shape == (1, 3)
    with pytest.raises(SelfcalError, match="cannot be halved 2 times"):
        build_score(settings(**changes), (1, 6, 6), 3)


def test_starting_from_the_score_model_copies_its_encoder():
    score, classifier = build_score(settings(), (1, 8, 8), 3), build_classifier(settings(), (1, 8, 8), 3)
    for weights in score.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    start_from_score(classifier, {"score": score})
    theirs, ours = encoder_of(score), encoder_of(classifier)
    assert ours
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("cg", {"classifier.width": 16}, "the two encoders differ"),
        ("cg", {"classifier.network": "mlp"}, "the two encoders differ"),
        ("dpt", {}, "trains no score model"),
    ],
)
def test_a_start_that_cannot_be_is_refused_before_anything_is_written(tmp_path, method, changes, message):
    both = {f"{role}.{key}": value for role in ("score", "classifier") for key, value in NETWORK.items()}
    with pytest.raises(SelfcalError, match=message):
        selfcal.train(
            "digits", method, 0.1, tmp_path / "r", steps=2, settings=both | {"classifier.start": "score"} | changes
        )
    assert not (tmp_path / "r").exists()


def test_only_the_energy_heads_inner_score_acts_and_training_says_so(tmp_path, capfd):
    both = {f"{role}.{key}": value for role in ("score", "classifier") for key, value in NETWORK.items()}
    common = both | {"classifier.batch": 32, "classifier.lr": 2e-3, "terms.sc_weight": 1.0, "run.log_every": 5}
    fractions = {}
    for head in ("energy", "pooled"):
        run = selfcal.train(
            "digits", "cg-sc-all", 0.1, tmp_path / head, settings=common | {"classifier.head": head}, steps=60
        )
        fractions[head] = run.describe()["learned"]["classifier"]["sc_fraction"]
        said = "self-calibration did not act" in capfd.readouterr().err
        assert said == (head == "pooled")
    assert fractions["energy"] < 0.8
    assert fractions["pooled"] > 0.95


def without_new_settings(run):
    """Its config.json as it was before heads, patches and beginnings could be chosen."""
    config = json.loads((run.path / "config.json").read_text())
    for role in ("score", "classifier", "conditional"):
        for key in ("head", "patch", "start", "beta2"):
            del config["settings"][role][key]
    (run.path / "config.json").write_text(json.dumps(config))


def test_a_run_of_another_network_from_before_goes_on(tmp_path):
    small = {"score.width": 8, "classifier.width": 8}
    run = selfcal.train("moons", "cg", 0.1, tmp_path / "r", settings=small, steps=3, until="score")
    without_new_settings(run)
    assert selfcal.train("moons", "cg", 0.1, tmp_path / "r", settings=small, steps=3).describe()["finished"]


def test_a_run_from_before_heads_were_a_choice_has_the_pooled_one(tmp_path):
    both = {f"{role}.{key}": value for role in ("score", "classifier") for key, value in NETWORK.items()}
    run = selfcal.train("digits", "cg", 0.1, tmp_path / "r", settings=both | {"classifier.head": "pooled"}, steps=3)
    images = run.sample(count=4, steps=3).x
    without_new_settings(run)
    again = selfcal.load(run.path)
    assert again.settings.classifier.head == "pooled"
    assert torch.equal(again.sample(count=4, steps=3).x, images)
