"""The real images' side: every leave-one-out equals the plain function on the samples that are left."""

from __future__ import annotations

import pytest
import torch

from selfcal import metrics
from selfcal.core.errors import SelfcalError
from selfcal.data.sources import load_data
from selfcal.diffusion.samples import Samples
from selfcal.evaluation import features as extractors
from selfcal.evaluation.cache import cache_folder, remembered
from selfcal.evaluation.reference import NEIGHBOURS, Reference
from selfcal.evaluation.sides import Frechet, Groups, Kernel, Neighbourhoods
from selfcal.metrics import interval


@pytest.mark.parametrize(("real", "fake", "dimensions"), [(300, 200, 8), (60, 40, 64), (500, 30, 16)])
def test_sides_equal_the_functions_of_metrics(real, fake, dimensions):
    a, b = torch.randn(real, dimensions), 1.1 * torch.randn(fake, dimensions) + 0.2
    groups = Groups.in_turn(fake, 10)
    frechet, kernel, near = Frechet(a)(b, groups), Kernel(a)(b, groups), Neighbourhoods(a, 5)(b, groups)
    for i, mask in enumerate(groups.masks()):
        assert float(frechet[i]) == pytest.approx(metrics.fid(a, b[mask]), rel=1e-6)
        assert float(kernel[i]) == pytest.approx(metrics.kid(a, b[mask]), rel=1e-6, abs=1e-9)
        assert tuple(near[i].tolist()) == pytest.approx(metrics.density_coverage(a, b[mask], 5), rel=1e-12)
    whole = Groups.in_turn(fake, 1)
    assert len(Frechet(a)(b, whole)) == len(Kernel(a)(b, whole)) == len(Neighbourhoods(a, 5)(b, whole)) == 1


def some_digits(count, shift=0.0):
    data = load_data("digits")
    order = torch.arange(count) % len(data.x)
    x = data.x[order] + 0.3 * torch.randn(count, *data.shape) + shift
    return data, Samples(x.clamp(-1, 1), torch.arange(count) * 10 // count, data.classes, {})


def test_measuring_equals_the_plain_functions_and_their_jackknife():
    data, samples = some_digits(200)
    judge = extractors.find("auto", data)
    values, intervals = Reference(data, judge).measure(samples, intervals=True)
    real, y = judge.embed(data.x), data.y

    def plain(mask):
        fake, wanted = judge.embed(samples.x[mask]), samples.y[mask]
        p = judge.classify(samples.x[mask])
        density, coverage = metrics.density_coverage(real, fake, NEIGHBOURS)
        return {
            "intra_fid": metrics.per_class(metrics.fid, real, y, fake, wanted),
            "fid": metrics.fid(real, fake),
            "kid": metrics.kid(real, fake),
            "density": density,
            "coverage": coverage,
            "intra_coverage": metrics.per_class(
                lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[1], real, y, fake, wanted
            ),
            "inception_score": metrics.inception_score(p, splits=1)[0],
            "accuracy": metrics.generation_accuracy(p, wanted),
        }

    whole = plain(torch.ones(200, dtype=torch.bool))
    for name, expected in interval.jackknife(plain, whole, 200).items():
        assert values[name] == pytest.approx(whole[name], rel=1e-6)
        assert intervals[name] == pytest.approx(expected, rel=1e-4, abs=1e-6), name
    assert Reference(data, judge).measure(samples)[1] is None


def test_too_few_samples_for_an_interval_have_none():
    data, samples = some_digits(20)  # two of each class: leaving a group out leaves one
    _, intervals = Reference(data, extractors.find("auto", data)).measure(samples, intervals=True)
    assert intervals["intra_fid"] is None
    assert intervals["accuracy"] is not None


def test_what_is_remembered_is_made_once_and_a_damaged_file_is_made_again(capfd):
    made = []

    def make():
        made.append(1)
        return {"a": torch.arange(5.0)}

    assert torch.equal(remembered("numbers", make)["a"], remembered("numbers", make)["a"])
    assert len(made) == 1
    (file,) = cache_folder().glob("numbers*")
    content = bytearray(file.read_bytes())
    for flip in (10, 70, len(content) - 1):
        spoiled = bytearray(content)
        spoiled[flip] ^= 1
        file.write_bytes(spoiled)
        assert torch.equal(remembered("numbers", make)["a"], torch.arange(5.0))
        assert "is made again" in capfd.readouterr().err
    file.write_bytes(b"")
    assert torch.equal(remembered("numbers", make)["a"], torch.arange(5.0))
    assert len(made) == 5


def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch, capfd):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert remembered("numbers", lambda: {"a": torch.ones(2)})["a"].sum() == 2
    assert "cannot be written" in capfd.readouterr().err


def test_an_empty_cache_variable_is_no_folder_here(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder().is_absolute()


def test_samples_that_are_not_numbers_are_refused():
    data, samples = some_digits(40)
    samples.x[3] = float("nan")
    with pytest.raises(SelfcalError, match="NaN"):
        Reference(data, extractors.find("auto", data)).measure(samples)
