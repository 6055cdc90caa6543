"""From settings to networks, and the settings that no network can have."""

from __future__ import annotations

import pytest
import torch

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.core.settings import resolve
from selfcal.nets.builders import build_classifier, build_conditional, build_score, network_recipe


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
        ((1, 8, 8), ["score.network=cnn"], "unknown network 'cnn'.*mlp, ncsnpp"),
    ],
)
def test_refusals(shape, changes, message):
    with pytest.raises(SelfcalError, match=message):
        build_score(resolve("images", ["score.network=ncsnpp", "score.width=8", *changes]), shape, 2)


@pytest.mark.parametrize(
    "change", ["classifier.head=foo", "classifier.form=foo", "conditional.network=foo", "sampling.sampler=foo"]
)
def test_a_name_that_is_in_no_table_is_refused_whatever_the_network(tmp_path, change):
    with pytest.raises(SelfcalError, match=f"unknown {change.split('=')[0]} 'foo'"):
        selfcal.train("digits", "cg", "2/class", tmp_path / "r", steps=2, settings=[change])
    assert not (tmp_path / "r").exists()


def test_a_network_that_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(SelfcalError, match="8×8 pixels are too small for a classifier with 5 multipliers"):
        selfcal.train(
            "digits", "cg", "2/class", tmp_path / "r",
            settings={"classifier.network": "ncsnpp", "classifier.multipliers": (1, 1, 1, 1, 1)},
        )  # fmt: skip
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("kind", ["mlp", "ncsnpp"])
def test_every_setting_of_a_network_reaches_it(kind):
    """Each changes the keywords that it is made of, and those alone."""
    keys = {"width": 24, "blocks": 2, "dropout": 0.3}
    if kind == "ncsnpp":
        keys |= {"multipliers": (1, 3), "fourier_scale": 4.0}
    usual = {"score.network": kind, "score.width": 8, "score.blocks": 1, "score.multipliers": (1, 2)}

    def keywords(changes):
        name, words = network_recipe(resolve("images", usual | changes).score, (1, 8, 8), 3)
        assert name == kind
        return words

    plain = keywords({})
    for key, value in keys.items():
        changed = {k: v for k, v in keywords({f"score.{key}": value}).items() if v != plain[k]}
        assert changed == {key: list(value) if isinstance(value, tuple) else value}
    if kind == "ncsnpp":
        assert keywords({"score.attention": (4,)})["attention"] == [1], "resolutions become levels"
