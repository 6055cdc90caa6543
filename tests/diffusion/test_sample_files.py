"""Samples as files: by their ending, in folders that no name leads astray, whole or not at all."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from selfcal.core import files
from selfcal.core.errors import SelfcalError
from selfcal.diffusion.pictures import GAP, LETTERS, WIDE, captioned_grid
from selfcal.diffusion.sample_files import check_target, ending, folder_names, next_folder
from selfcal.diffusion.samples import Samples

HOSTILE = ("a/b", "a_b", "grid.png", "..", "A_B", "manifest.json", ".hidden", "", "nul", "x" * 300, "\x1b[31m", "cat.")


def made(classes=("cat", "dog"), each=3, shape=(3, 8, 8)):
    y = torch.arange(len(classes)).repeat_interleave(each)
    return Samples(torch.rand(len(y), *shape) * 2 - 1, y, tuple(classes), {"scale": 1.5, "seed": 0})


def test_names_of_folders_differ_and_lead_nowhere_else(tmp_path):
    names = folder_names(HOSTILE)
    assert len({name.casefold() for name in names}) == len(HOSTILE)
    assert not {"grid.png", "manifest.json"} & set(names)
    assert names[1] == "a_b", "a class that can be called as it is, is"
    assert folder_names(["x,a", "b c", "ä"]) == ["x,a", "b c", "ä"]
    made(HOSTILE, each=1).save(tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [row["class"] for row in manifest["classes"]] == list(HOSTILE)
    for row in manifest["classes"]:
        folder = tmp_path / "out" / row["folder"]
        assert folder.parent == tmp_path / "out"
        assert len(list(folder.glob("*.png"))) == row["images"] == 1
    assert manifest["made"]["scale"] == 1.5


def test_a_zip_holds_what_a_folder_does(tmp_path):
    samples = made()
    samples.save(tmp_path / "s.zip")
    samples.save(tmp_path / "s")
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        assert archive.testzip() is None
        inside = {name: archive.read(name) for name in archive.namelist()}
    folder = tmp_path / "s"
    assert inside == {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    first = np.asarray(Image.open(io.BytesIO(inside["dog/00000.png"])))
    assert np.abs(first.transpose(2, 0, 1) / 127.5 - 1 - samples.x[3].numpy()).max() < 0.005


def test_a_png_is_one_picture_and_an_npz_the_numbers(tmp_path):
    samples = made()
    samples.save(tmp_path / "s.png")
    samples.save(tmp_path / "S.NPZ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["S.NPZ", "s.png"]
    assert Image.open(tmp_path / "s.png").format == "PNG"
    with np.load(tmp_path / "S.NPZ") as arrays:
        assert torch.equal(torch.as_tensor(arrays["x"]), samples.x)
        assert arrays["classes"].tolist() == ["cat", "dog"]
        assert json.loads(str(arrays["made"])) == samples.made


@pytest.mark.parametrize("name", ["x.npy", "x.jpg", "x.tar", "x.pt", "x.NPY"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(SelfcalError, match=r"ends in \.npz, \.zip or \.png"):
        made().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_number_behind_a_dot_is_no_ending(tmp_path):
    assert ending(tmp_path / "run-1.5") == ""
    made().save(tmp_path / "v0.2")
    assert (tmp_path / "v0.2" / "grid.png").exists()


def test_points_have_no_pictures(tmp_path):
    points = Samples(torch.zeros(2, 2), torch.tensor([0, 1]), ("a", "b"), {})
    for name in ("p", "p.png", "p.zip"):
        with pytest.raises(SelfcalError, match="points cannot be saved as images"):
            points.save(tmp_path / name)
    points.save(tmp_path / "p.npz")


def test_what_is_there_stays(tmp_path):
    made().save(tmp_path / "s")
    before = {p: p.read_bytes() for p in (tmp_path / "s").rglob("*.png")}
    with pytest.raises(SelfcalError, match="not empty"):
        made().save(tmp_path / "s")
    (tmp_path / "mine.zip").write_text("mine")
    with pytest.raises(SelfcalError, match="exists already"):
        check_target(tmp_path / "mine.zip", is_image=True)
    assert {p: p.read_bytes() for p in (tmp_path / "s").rglob("*.png")} == before
    assert next_folder(tmp_path).name == "set-001"
    (tmp_path / "set-041").mkdir()
    assert next_folder(tmp_path).name == "set-042"


def test_a_disk_that_fills_up_leaves_no_half_folder(tmp_path, monkeypatch):
    written = []

    def full(path, content):
        written.append(path)
        if len(written) > 3:
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(files, "write_in_place", full)
    with pytest.raises(SelfcalError, match="No space left on device"):
        made().save(tmp_path / "s")
    assert len(written) > 3
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("classes", "each"), [(1, 300), (200, 1), (10, 6), (2, 1)])
def test_grids_wrap(classes, each):
    """Never an endless row or column: no picture is wider than WIDE, nor far from square for many images."""
    samples = made([f"class number {c}" for c in range(classes)], each, (1, 16, 16))
    picture = captioned_grid(samples.x.numpy(), samples.y.numpy(), samples.classes)
    assert picture.width <= WIDE
    assert picture.height <= 3 * WIDE
    assert picture.height > LETTERS + 64


def test_a_grid_shows_the_images_below_the_name_of_their_class():
    x = np.full((2, 1, 64, 64), -1.0)
    x[1] = 0.5
    picture = np.asarray(captioned_grid(x, np.array([1, 0]), ["bright", "dark"]))
    top = LETTERS + 3 * GAP
    assert (picture[top : top + 64, GAP : GAP + 64] == 191).all(), "class 0 first"
    assert (picture[:top, GAP : GAP + 64] < 100).any(), "its name in ink"
    other = GAP + 64 + GAP + 2 * GAP + GAP
    assert (picture[top : top + 64, other : other + 64] == 0).all()


def test_where_not_all_are_shown_the_caption_has_room_to_say_so():
    x = np.zeros((40, 1, 8, 8))
    few = captioned_grid(x, np.zeros(40, int), ["c"], most=20)
    assert few.height < captioned_grid(x, np.zeros(40, int), ["c"]).height
