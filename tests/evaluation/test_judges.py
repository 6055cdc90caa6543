"""Judges: which features a data set is measured by, and which class they see."""

from __future__ import annotations

import pytest
import torch

from selfcal.core.errors import SelfcalError
from selfcal.data.sources import load_data
from selfcal.evaluation import features as extractors
from selfcal.evaluation.cache import cache_folder
from selfcal.metrics import generation_accuracy


def test_the_bundled_judge_knows_digits_it_never_saw():
    data = load_data("digits")
    judge = extractors.find("auto", data)
    assert judge.name == "digits-cnn"
    assert len(judge.sha256) == 64
    assert generation_accuracy(judge.classify(data.x_test), data.y_test) > 0.98
    assert judge.embed(data.x_test).shape == (len(data.x_test), 64)


def test_points_are_their_own_features():
    data = load_data("moons")
    judge = extractors.find("auto", data)
    assert judge.name == "points"
    assert torch.equal(judge.embed(data.x), data.x)
    with pytest.raises(SelfcalError, match="for images"):
        extractors.find("cnn", data)
    with pytest.raises(SelfcalError, match="unknown feature extractor"):
        extractors.find("inseption", data)


def test_reference_features_are_cached_by_content():
    data = load_data("digits")
    judge = extractors.find("auto", data)
    first = extractors.reference(judge, data)
    (file,) = cache_folder().glob("features-*")
    assert torch.equal(first, extractors.reference(judge, data))
    file.write_bytes(b"damaged")
    assert torch.equal(first, extractors.reference(judge, data))


def test_a_judge_is_trained_once_for_other_images(monkeypatch):
    """Two kinds of stripes: easy to tell apart, and the second call reads the first one's file."""
    from selfcal.data.dataset import Dataset, no_test
    from selfcal.evaluation import judge as judging

    monkeypatch.setattr(judging, "STEPS", 60)
    y = torch.arange(120) % 2
    x = 0.3 * torch.randn(120, 1, 8, 8)
    x[y == 0, :, ::2] += 0.5
    x[y == 1, :, :, ::2] += 0.5
    data = Dataset("stripes", x, y, ("a", "b"), tuple(map(str, range(120))), *no_test(x))
    first = extractors.find("auto", data)
    assert first.name == "stripes-cnn"
    assert generation_accuracy(first.classify(x), y) > 0.95
    monkeypatch.setattr(judging, "fit", None)
    assert extractors.find("auto", data).sha256 == first.sha256
