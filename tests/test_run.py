"""What `Run` adds to its directory: sampling, predicting and evaluating by the names users type."""

from __future__ import annotations

import json

import pytest
import torch

import selfcal
from selfcal.core.randomness import random_state
from selfcal.diffusion.guidance import GUIDES
from selfcal.diffusion.samplers import SAMPLERS

TINY = {"network": "ncsnpp", "width": 8, "blocks": 1, "multipliers": (1, 2), "form": "ve", "batch": 8}
SETTINGS = {f"{role}.{key}": value for role in ("score", "classifier") for key, value in TINY.items()}
SETTINGS |= {"sampling.sampler": "heun", "sampling.steps": 3, "sampling.batch": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """U-Nets of a few steps: wrong pictures, but a real run, opened again."""
    out = tmp_path_factory.mktemp("run") / "r"
    selfcal.train("digits", "cg-sc-all", "2/class", out, steps=3, settings=SETTINGS)
    return selfcal.load(out)


def by_hand(run, sampler, guide, y, steps, scale=1.0, seed=0):
    """The run's networks in the sampler and the guide themselves, four at a time."""
    row, parts = SAMPLERS[sampler], []
    sigmas = row.levels(run.noise, steps)
    for number, wanted in enumerate(y.split(4)):
        rng = random_state(seed, "sampling", number)
        x = sigmas[0] * torch.randn(len(wanted), 1, 8, 8, generator=rng)
        parts.append(row.function(GUIDES[guide].score(run.networks, wanted, scale), x, sigmas, rng=rng))
    return torch.cat(parts).clamp(-1, 1)


def test_sampling_is_the_methods_guide_with_the_settings_sampler(run):
    made = run.sample(classes=["3", 5], count=6, seed=2)
    assert made.y.tolist() == [3, 3, 3, 5, 5, 5]
    assert torch.equal(made.x, by_hand(run, "heun", "classifier", made.y, 3, seed=2))
    assert (made.made["sampler"], made.made["steps"], made.made["scale"]) == ("heun", 3, 1.0)


@pytest.mark.parametrize("guide", ["classifier", "classifier-only", "classifier-only-unconditional", "unconditional"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_with_every_guide(run, sampler, guide):
    made = run.sample(classes=[1, 7], count=2, sampler=sampler, steps=2, guide=guide, scale=1.5)
    assert torch.equal(made.x, by_hand(run, sampler, guide, torch.tensor([1, 7]), 2, 1.5))


def test_predictions_pass_in_parts(run):
    """Large test sets do not pass through a U-Net in one go; what comes out is the same."""
    sizes, x = [], run.data.x_test[:30]
    network = run.networks["classifier"]
    hook = network.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    in_parts = run.predict_proba(x)
    hook.remove()
    assert sizes == [4] * 7 + [2]
    torch.testing.assert_close(in_parts, network(x, torch.full((30,), run.noise.sigma_min)).softmax(-1))


def test_evaluation_is_written_into_the_run(tmp_path):
    small = {"score.width": 8, "classifier.width": 8}
    run = selfcal.train("moons", "cg", 0.05, tmp_path / "r", steps=5, settings=small)
    report = run.evaluate(count=20, steps=2, intervals=False)
    assert json.loads((run.path / "metrics.json").read_text()) == report
    assert run.describe()["metrics"] == report
    (row,) = report["results"]
    assert (row["method"], row["labels"], row["labelled"], row["samples"]) == ("cg", "0.05", 100, 20)


def test_classes_named_with_and_without_commas(run):
    assert run.classes_named("3, 5") == ["3", "5"]
    with pytest.raises(selfcal.SelfcalError, match="unknown class 'ten'"):
        run.sample(classes=["ten"], count=1)


def test_a_guide_the_method_has_no_network_for(tmp_path):
    run = selfcal.train("moons", "cond", 0.05, tmp_path / "r", steps=5)
    with pytest.raises(selfcal.SelfcalError, match="needs a classifier network"):
        run.sample(count=2, guide="classifier-only")
    with pytest.raises(selfcal.SelfcalError, match="no classifier to predict"):
        run.predict_proba(run.data.x[:2])


def test_a_plain_conditional_model_refuses_a_scale(tmp_path):
    run = selfcal.train("moons", "cond", 0.05, tmp_path / "r", steps=5)
    run.sample(count=2, steps=2, scale=0)
    with pytest.raises(selfcal.SelfcalError, match="no guidance to scale"):
        run.sample(count=2, steps=2, scale=1.5)
