from __future__ import annotations

import pytest

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings, presets, purpose, resolve


def test_presets_hold_differences_and_changes_win():
    assert resolve("digits").noise.sigma_max == 10.0
    assert resolve("digits", ["noise.sigma_max=5", "terms.sc_weight=10"]).noise.sigma_max == 5.0
    assert resolve("digits", {"terms.sc_weight": 10}).terms.sc_weight == 10
    assert resolve("digits", steps=7).score.steps == 7
    assert resolve("digits", ["classifier.steps=9"], steps=7).classifier.steps == 9
    assert resolve("fashion-small").score.sigma_centre == 0.67
    assert resolve("fashion-small", ["score.sigma_centre=none"]).score.sigma_centre is None


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_valid(name):
    assert resolve(name).noise.sigma_min < resolve(name).noise.sigma_max


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["terms.sc_wait=1"], r"unknown setting 'terms\.sc_wait'; did you mean 'terms\.sc_weight'"),
        (["terms.sc_weight"], "not of the form key=value"),
        (["score.steps=many"], r"setting score\.steps = 'many'"),
        (["score.lr=-1"], "greater than 0"),
        (["score.lr=none"], r"setting score\.lr = None"),
        (["noise.sigma_min=nan"], r"noise\.sigma_min"),
        (["noise.sigma_max=0.001"], "larger than noise.sigma_min"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(SelfcalError, match=message):
        resolve("digits", changes)


def test_unknown_preset():
    with pytest.raises(SelfcalError, match="did you mean 'digits'"):
        resolve("digit")


def test_a_preset_may_start_from_another():
    assert resolve("cifar10-deep").score.blocks == 8
    assert resolve("cifar10-deep").score.lr == resolve("cifar10").score.lr
    assert resolve("cifar100") == resolve("cifar10")
    assert resolve("fashion-small").score.attention == (7,)


@pytest.mark.parametrize("name", presets())
def test_every_preset_says_what_it_is_for(name):
    assert len(purpose(name).split()) >= 4
    assert "#" not in purpose(name)


def test_every_setting_says_what_it_means():
    for section, field in Settings.model_fields.items():
        for name, setting in type(field.default).model_fields.items():
            assert setting.description, f"{section}.{name}"


def test_presets_for_photos_differ_in_what_their_size_asks_for():
    assert resolve("photos64").classifier.patch == 2
    assert resolve("photos64").score.patch == 1  # squares as entry leave fine noise in the pictures
    assert resolve("photos64").classifier.model_copy(update={"patch": 1}) == resolve("photos32").classifier
    assert resolve("photos64-gpu").score.width > resolve("photos64").score.width
    assert resolve("photos64").run.preview_every == 250
