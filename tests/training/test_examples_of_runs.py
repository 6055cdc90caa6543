"""A run whose data has moved, grown or shrunk: used where it can be, said what changed, refused where it cannot."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import selfcal
from command_line import typed_unwrapped as typed
from selfcal.core.errors import SelfcalError

SMALL = {"score.width": 8, "classifier.width": 8}


@pytest.fixture
def folder(tmp_path):
    """Two classes of 25 small colour images."""
    rng = np.random.default_rng(0)
    for c, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(25):
            pixels = rng.integers(0, 100, (4, 4, 3), dtype=np.uint8) + 120 * c
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{i:02d}.png")
    return tmp_path / "photos"


@pytest.fixture
def run(folder, tmp_path):
    return selfcal.train(folder, "cg", "4/class", tmp_path / "r", steps=2, settings=SMALL)


def add(folder, name, value=77):
    (folder / name).parent.mkdir(exist_ok=True)
    Image.new("RGB", (4, 4), (value, 1, 2)).save(folder / name)


def test_a_folder_that_grew_is_still_the_same_run(run, folder, capsys):
    """New photos, even a new class, sort between the others: the images of the training are found by their content."""
    before, labels = run.data, run.pool.y
    add(folder, "cat/00a.png")
    add(folder, "bird/1.png", 9)
    again = selfcal.load(run.path)
    assert again.data.sha256 == before.sha256
    assert torch.equal(again.data.x, before.x)
    assert torch.equal(again.pool.y, labels)
    said = " ".join(capsys.readouterr().err.split())
    assert "2 new (bird/1.png, cat/00a.png); the images of the training are used" in said


def test_a_folder_that_shrank_is_refused_unless_anyway(run, folder, capsys):
    (folder / "dog" / "03.png").unlink()
    add(folder, "dog/04.png")
    arguments = ("evaluate", run.path, "--count", "8", "--steps", "2", "--no-intervals")
    code, _, err = typed(capsys, *arguments)
    assert code == 2
    assert "1 missing (dog/03.png), 1 changed (dog/04.png); sampling needs no data" in err
    assert not (run.path / "metrics.json").exists()
    code, _, err = typed(capsys, *arguments, "--anyway")
    assert code == 0, err
    assert "used as it is now" in err
    (row,) = json.loads((run.path / "metrics.json").read_text())["results"]
    assert row["reference_examples"] == 49
    assert row["reference_sha256"] != run.config["data"]["sha256"]
    assert typed(capsys, "sample", run.path, "--count", "2", "--steps", "2")[0] == 0


def test_labels_that_were_shown_stay_those_when_data_changed(run, folder):
    before = dict(zip(run.data.names, run.pool.y.tolist(), strict=True))
    gone = next(name for name, label in before.items() if label < 0)
    (folder / gone).unlink()
    now = selfcal.load(run.path, anyway=True)
    assert dict(zip(now.data.names, now.pool.y.tolist(), strict=True)) == {n: y for n, y in before.items() if n != gone}


def test_data_that_moved(run, folder, tmp_path, capsys):
    folder.rename(tmp_path / "elsewhere")
    arguments = ("evaluate", run.path, "--count", "8", "--steps", "2", "--no-intervals")
    assert typed(capsys, *arguments)[0] == 2
    code, _, err = typed(capsys, *arguments, "--data", tmp_path / "elsewhere")
    assert code == 0, err
    assert "changed" not in err
    shutil.rmtree(tmp_path / "elsewhere" / "cat")
    code, _, err = typed(capsys, *arguments, "--data", tmp_path / "elsewhere")
    assert code == 2
    assert "25 missing (cat/00.png, cat/01.png, cat/02.png, …)" in err


def test_runs_from_before_say_what_they_can(run, folder):
    (run.path / "examples.json").unlink()
    add(folder, "bird/1.png")
    with pytest.raises(SelfcalError, match="51 examples, where it was trained on 50; classes that differ: bird"):
        _ = selfcal.load(run.path).data
    anyway = selfcal.load(run.path, anyway=True)
    assert anyway.data.classes == ("cat", "dog")
    assert (anyway.data.y == -1).sum() == 1


@pytest.mark.parametrize("spoil", [{"names": []}, {"hashes": "x"}, {"labels": [1]}])
def test_a_damaged_list_of_examples_is_one_sentence(run, folder, spoil):
    file = run.path / "examples.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | spoil))
    assert len(selfcal.load(run.path).data.x) == 50, "nobody asks while the data is as it was"
    add(folder, "cat/new.png")
    with pytest.raises(SelfcalError, match=r"examples\.json cannot be read"):
        _ = selfcal.load(run.path).data
