"""Every data source as a user would hand it over, and every way it can be wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from selfcal.core.errors import SelfcalError
from selfcal.data.sources import load_data
from selfcal.diffusion.scores import UNLABELED


def picture(path, size=(6, 4), value=255, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(path)


def test_digits_keep_a_fixed_stratified_test_split():
    data = load_data("digits")
    assert data.shape == (1, 8, 8)
    assert len(data.x) + len(data.x_test) == 1797
    assert data.x.min() == -1
    assert data.x.max() == 1
    for c in range(10):
        share = (data.y_test == c).sum() / ((data.y == c).sum() + (data.y_test == c).sum())
        assert 0.19 < share < 0.22
    assert data.sha256 == load_data("digits").sha256


def test_npz_of_colour_bytes_and_named_classes(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    np.savez(
        tmp_path / "d.npz",
        x=x,
        y=np.array(["b", "a", "", "a", "b", "b"]),
        x_test=x[:2],
        y_test=np.array(["a", "b"]),
    )
    data = load_data(tmp_path / "d.npz")
    assert data.shape == (3, 5, 4)
    assert data.classes == ("a", "b")
    assert data.y.tolist() == [1, 0, UNLABELED, 0, 1, 1]
    assert data.y_test.tolist() == [0, 1]
    torch.testing.assert_close(data.x[0, :, 0, 0], torch.tensor(x[0, 0, 0]).float() / 127.5 - 1)


def test_npz_of_points_with_numbers_as_classes(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.array([[1.0, -30], [2, 5], [3, 6]]), y=np.array([10, -1, 9]))
    data = load_data(tmp_path / "d.npz")
    assert data.classes == ("9", "10")
    assert data.y.tolist() == [1, UNLABELED, 0]
    assert data.x[0].tolist() == [1, -30]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros(3)}, "no array 'x'"),
        ({"x": np.array([{"a": 1}], dtype=object)}, "pickled objects"),
        ({"x": np.zeros((3, 2)), "y": np.array([0, 1, -2])}, "the label -2"),
        ({"x": np.zeros((3, 2)), "y": np.array([{}, {}, {}], dtype=object)}, "pickled objects"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2, dtype=int)}, "one label per example"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, "whole numbers or names"),
        ({"x": np.full((3, 1, 2, 2), 200.0)}, r"must lie in \[−1, 1\]"),
        ({"x": np.zeros((3, 5, 4, 4))}, "1 or 3 channels"),
        ({"x": np.zeros((3, 2, 2, 2, 2))}, "expected points"),
        ({"x": np.zeros((0, 2))}, "holds no examples"),
        ({"x": np.array([[1.0, np.nan], [0, 0]])}, "NaN or infinite"),
        ({"x": np.full((2, 4, 4), np.inf)}, "must lie|NaN or infinite"),
        ({"x": np.array(["a", "b"])}, "numbers are expected"),
        ({"x": np.zeros((3, 2)), "x_test": np.zeros((1, 2))}, "no 'y_test'"),
        (
            {
                "x": np.zeros((3, 2)),
                "y": np.array([0, 1, 1]),
                "x_test": np.zeros((1, 2)),
                "y_test": np.array([7]),
            },
            "class 7",
        ),
    ],
)
def test_npz_refusals(tmp_path, arrays, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(SelfcalError, match=message):
        load_data(tmp_path / "d.npz")


def test_npz_that_is_not_one(tmp_path):
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 nonsense")
    with pytest.raises(SelfcalError, match=r"cannot be read as an \.npz"):
        load_data(tmp_path / "d.npz")
    with pytest.raises(SelfcalError, match="does not exist"):
        load_data(tmp_path / "gone.npz")


def test_folder_with_classes_and_unlabelled(tmp_path):
    picture(tmp_path / "cat" / "1.png")
    picture(tmp_path / "dog" / "1.jpg", value=0)
    picture(tmp_path / "unlabeled" / "x.png")
    picture(tmp_path / "loose.png")
    (tmp_path / "notes.txt").write_text("not an image")
    data = load_data(tmp_path)
    assert data.classes == ("cat", "dog")
    assert dict(zip(data.names, data.y.tolist(), strict=True)) == {
        "loose.png": UNLABELED,
        "cat/1.png": 0,
        "dog/1.jpg": 1,
        "unlabeled/x.png": UNLABELED,
    }
    assert data.shape == (3, 4, 6)
    assert data.x[data.names.index("cat/1.png"), 0].eq(1).all()


def test_folder_with_train_and_test(tmp_path):
    for part in ("train", "test"):
        for name in ("a", "b"):
            picture(tmp_path / part / name / "0.png", mode="L")
    data = load_data(tmp_path)
    assert data.shape == (1, 4, 6)
    assert (len(data.x), len(data.x_test)) == (2, 2)
    assert data.y_test.tolist() == [0, 1]


def test_folder_refusals(tmp_path):
    with pytest.raises(SelfcalError, match="holds no images"):
        load_data(tmp_path)
    picture(tmp_path / "a" / "0.png")
    (tmp_path / "b").mkdir()
    with pytest.raises(SelfcalError, match=r"class folder .*b holds no images"):
        load_data(tmp_path)
    picture(tmp_path / "b" / "0.png", size=(7, 4))
    with pytest.raises(SelfcalError, match=r"different sizes: .*6×4, .*7×4"):
        load_data(tmp_path)
    (tmp_path / "b" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(SelfcalError, match=r"b.0\.png cannot be read as an image"):
        load_data(tmp_path)


def test_truncated_image_is_refused(tmp_path):
    picture(tmp_path / "a" / "0.png", size=(64, 64))
    whole = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "0.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SelfcalError, match="cannot be read as an image"):
        load_data(tmp_path)


def test_unknown_data_names_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dist").mkdir()  # near, but not as near
    with pytest.raises(SelfcalError, match="did you mean 'digits'"):
        load_data("digts")
    (tmp_path / "photos").mkdir()
    with pytest.raises(SelfcalError, match="no folder or file 'photso' here; did you mean 'photos'"):
        load_data("photso")
    (tmp_path / "f.txt").write_text("")
    with pytest.raises(SelfcalError, match="neither a folder"):
        load_data(tmp_path / "f.txt")
