"""Which preset data get unless one is named: by name, by size, by device; or advice."""

from __future__ import annotations

import pytest
import torch

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


def test_bundled_sets_have_their_own():
    assert default_preset(pile(1, 8, 8, name="digits"), "cuda") == "digits"
    assert default_preset(pile(1, 28, 28, name="fashion"), "cpu") == "fashion-small"
    assert default_preset(pile(3, 32, 32, name="cifar10"), "cpu") == "cifar10"
    assert default_preset(pile(1, 28, 28, name="mnist"), "cpu") == "photos32"


@pytest.mark.parametrize("side", [14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80])
@pytest.mark.parametrize("method", ["cg-sc-all", "cfg-all"])
def test_the_preset_by_size_builds_every_network(side, method):
    wanted = Request("photos", method, "1/class", preset=default_preset(pile(3, side, side), "cpu"))
    assert wanted.prepared(pile(3, side, side)).settings.classifier.head == "energy"


@pytest.mark.parametrize("side", [32, 64, 128])
def test_and_so_do_those_for_a_gpu(side):
    preset = default_preset(pile(3, side, side), "cuda")
    assert Request("photos", "cg-sc-all", "1/class", preset=preset).prepared(pile(3, side, side))
