"""Which preset data get unless one is named: by name, by size, by device; or advice."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.data.dataset import Dataset
from selfcal.training.request import Request, default_preset


def pile(*shape, name="photos"):
    x, y = torch.zeros(8, *shape), torch.arange(8) % 2
    return Dataset(name, x, y, ("a", "b"), tuple(map(str, range(8))), x[:0], y[:0])


@pytest.mark.parametrize(
    ("shape", "device", "preset"),
    [
        ((2,), "cpu", "moons"),
        ((1, 8, 8), "cpu", "images"),
        ((3, 12, 12), "cpu", "images"),
        ((3, 13, 11), "cuda", None),
        ((3, 14, 16), "cpu", "photos16"),
        ((3, 20, 20), "cuda", "photos16"),
        ((1, 28, 28), "cpu", "photos32"),
        ((3, 40, 24), "cpu", "photos32"),
        ((3, 32, 32), "cuda", "photos32-gpu"),
        ((3, 64, 64), "cpu", "photos64"),
        ((3, 48, 80), "cpu", "photos64"),
        ((3, 64, 64), "cuda", "photos64-gpu"),
        ((3, 128, 128), "cuda", "photos128-gpu"),
    ],
)
def test_images_go_by_size_and_device(shape, device, preset):
    if preset is None:
        with pytest.raises(SelfcalError, match=r"11×13 pixels.*multiples of 2.*--size 12"):
            default_preset(pile(*shape), device)
    else:
        assert default_preset(pile(*shape), device) == preset


@pytest.mark.parametrize(
    ("side", "device", "advice"),
    [
        (256, "cpu", r"256×256 pixels; the largest .* on a CPU .* have 80\. .* --size 64"),
        (256, "cuda", r"on a GPU .* have 160\. .* --size 128"),
        (50, "cpu", r"50×50 pixels; .*photos64.* multiples of 8\. .* --size 48"),
        (30, "cpu", r"multiples of 4\. .* --size 32"),
    ],
)
def test_what_no_network_suits_gets_advice(side, device, advice):
    with pytest.raises(SelfcalError, match=advice):
        default_preset(pile(3, side, side), device)


def test_bundled_sets_have_their_own_and_folders_of_their_names_do_not():
    def of(name, *shape):
        return default_preset(replace(pile(*shape, name=name), published=True), "cpu")

    assert of("digits", 1, 8, 8) == "digits"
    assert of("fashion", 1, 28, 28) == "fashion-small"
    assert of("cifar10", 3, 32, 32) == "cifar10"
    assert of("mnist", 1, 28, 28) == "photos32"
    assert default_preset(pile(1, 28, 28, name="fashion"), "cpu") == "photos32"


@pytest.mark.parametrize("side", [14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80])
@pytest.mark.parametrize("method", ["cg-sc-all", "cfg-all"])
def test_the_preset_by_size_builds_every_network(side, method):
    wanted = Request("photos", method, "1/class", preset=default_preset(pile(3, side, side), "cpu"))
    assert wanted.prepared(pile(3, side, side)).settings.classifier.head == "energy"


@pytest.mark.parametrize("side", [32, 64, 128])
def test_and_so_do_those_for_a_gpu(side):
    preset = default_preset(pile(3, side, side), "cuda")
    assert Request("photos", "cg-sc-all", "1/class", preset=preset).prepared(pile(3, side, side))


def test_a_guide_for_a_given_score_model_takes_any_size():
    assert default_preset(pile(3, 256, 256), "cpu", score_given=True) == "photos64"
    assert default_preset(pile(3, 50, 50), "cpu", score_given=True) == "photos64"
    assert default_preset(pile(3, 65, 65), "cpu", score_given=True) == "images", "no squares of 2×2 fit"


QUICK = {"classifier.width": 8, "score.width": 8}


@pytest.fixture
def photos(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "photos.npz", x=x, y=np.arange(12) % 2)
    return tmp_path / "photos.npz"


def trained(photos, **more):
    options = {"steps": 3, "settings": QUICK} | more
    return selfcal.train(photos, "cg", "2/class", photos.parent / "r", **options)


def edit(photos, change):
    file = photos.parent / "r" / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


def test_a_run_from_when_all_images_were_treated_alike_goes_on(photos):
    run = trained(photos, preset="images")

    def as_then(config):
        for key in ("asked", "preset"):
            del config[key]
        del config["settings"]["run"]["preview_every"]

    edit(photos, as_then)
    again = trained(photos)
    assert again.settings.score.network == "mlp"
    assert again.describe()["weights_sha256"] == run.describe()["weights_sha256"]
    longer = trained(photos, steps=5)
    assert (longer.settings.score.network, longer.settings.score.steps) == ("mlp", 5)
    with pytest.raises(SelfcalError, match=r"differs in .*settings\.classifier"):
        trained(photos, steps=9, settings=QUICK | {"terms.sc_weight": 3})


def test_a_run_goes_on_with_what_it_began_with_when_its_preset_has_changed(photos):
    """The same words find it again; other words are compared as ever."""
    run = trained(photos)
    assert run.settings.score.network == "ncsnpp"
    assert (run.config["preset"], run.config["asked"]["preset"]) == ("photos16", None)
    edit(photos, lambda config: config["settings"]["terms"].update(sc_weight=7.0))
    again = trained(photos, settings=[f"{key}={value}" for key, value in QUICK.items()])
    assert again.settings.terms.sc_weight == 7.0
    assert trained(photos, steps=5).settings.terms.sc_weight == 7.0
    with pytest.raises(SelfcalError, match=r"settings\.terms\.sc_weight"):
        trained(photos, steps=5, settings=QUICK | {"classifier.dropout": 0.5})


def test_other_data_in_the_folder_is_refused_by_name(photos):
    trained(photos)
    with pytest.raises(SelfcalError, match=r"holds another run; it differs in data\."):
        selfcal.train("moons", "cg", "2/class", photos.parent / "r", steps=3, settings=QUICK)
