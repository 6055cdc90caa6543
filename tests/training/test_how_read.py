"""How a folder was read is remembered: later commands read the same data, and judge by the same labels."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image

import selfcal
from command_line import typed_unwrapped as typed
from selfcal.core.errors import SelfcalError

QUICK = ["score.width=8", "classifier.width=8", "score.batch=4", "classifier.batch=4"]


def pictures(root, names):
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6 + i, 9), (40 * i % 256, 0, 0)).save(root / name)
    return root


@pytest.fixture
def pile(tmp_path):
    """Of several sizes, one of them broken, with labels to learn from and others to judge by."""
    pictures(tmp_path / "pile", [f"{i}.png" for i in range(6)])
    (tmp_path / "pile" / "broken.png").write_bytes(b"")
    (tmp_path / "labels.csv").write_text("0.png;a\n1.png;b\n5.png;?\n")
    (tmp_path / "judge.tsv").write_text("2.png\ta\n3.png\tb\n")
    return tmp_path / "pile"


def trained(pile, out="run", **more):
    how = {"labels": pile.parent / "labels.csv", "size": 4, "skip_broken": True, "settings": QUICK, "steps": 1}
    return selfcal.train(pile, "cg", out=pile.parent / out, **how | more)


def test_the_same_is_read_again(pile):
    made = trained(pile, test_labels=pile.parent / "judge.tsv")
    about = json.loads((made.path / "config.json").read_text())["data"]
    assert (about["size"], about["skip_broken"]) == (4, True)
    run = selfcal.load(made.path)
    assert run.data.shape == (3, 4, 4)
    assert run.data.y.tolist() == [0, 1, 0, 1, -1, -1]
    assert run.pool.y.tolist() == [0, 1, -1, -1, -1, -1], "labels to judge by are seen by nobody"
    assert trained(pile, test_labels=pile.parent / "judge.tsv").path == made.path, "the same command goes on"
    assert trained(pile, out="other").config["data"]["sha256"] == about["sha256"], "they are no part of the data"
    Image.new("RGB", (6, 9), "white").save(pile / "0.png")
    with pytest.raises(SelfcalError, match="has changed since"):
        _ = selfcal.load(made.path).data


def test_what_was_not_asked_for_is_not_written(tmp_path):
    """So that config.json of plain folders is the one that earlier versions wrote."""
    root = tmp_path / "plain"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        Image.new("L", (4, 4), 9).save(root / name / "0.png")
    run = selfcal.train(root, "cg", out=tmp_path / "r", steps=1, settings=QUICK)
    assert set(run.config["data"]) == {"source", "name", "sha256", "shape", "classes", "examples", "test"}
    assert (run.config["labels"], run.config["labelled"]) == ("all", 2)


def test_a_run_begun_with_the_former_default_goes_on_with_it(tmp_path):
    """Few labels were once the default for every folder; the same command still resumes such a run."""
    for i in range(100):
        (tmp_path / "old" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), i).save(tmp_path / "old" / "ab"[i % 2] / f"{i}.png")
    first = selfcal.train(tmp_path / "old", "cg", 0.02, tmp_path / "r", steps=1, settings=QUICK)
    again = selfcal.train(tmp_path / "old", "cg", out=tmp_path / "r", steps=1, settings=QUICK)
    assert again.config == first.config
    assert again.config["labelled"] == 2
    with pytest.raises(SelfcalError, match="differs in labelled, labels_sha256"):
        selfcal.train(tmp_path / "old", "cg", "all", tmp_path / "r", steps=1, settings=QUICK)


def test_labels_to_judge_by_may_come_with_the_evaluation(pile):
    run = trained(pile)
    assert run.evaluate(count=4, steps=1, intervals=False)["guide"] == []
    report = run.evaluate(count=4, steps=1, intervals=False, test_labels=pile.parent / "judge.tsv")
    assert report["guide_split"] == "training images whose labels were hidden"
    with pytest.raises(SelfcalError, match="does not exist"):
        run.evaluate(test_labels=pile.parent / "gone.csv")


def test_wrong_labels_to_judge_by_are_told_before_anything_is_written(pile):
    (pile.parent / "judge.tsv").write_text("2.png\tc\n")
    with pytest.raises(SelfcalError, match=r"'2\.png' the label 'c'; the classes are a, b"):
        trained(pile, test_labels=pile.parent / "judge.tsv")
    assert not (pile.parent / "run").exists()


def test_a_built_in_set_is_found_again_beside_a_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = selfcal.train("moons", "cg", 0.03, "r", steps=1, settings=QUICK)
    pictures(tmp_path, ["moons/a/0.png", "moons/b/0.png"])
    assert selfcal.load("r").data.name == "moons"
    with pytest.raises(SelfcalError, match=r"write \./moons for the folder, or builtin:moons"):
        selfcal.train("moons", "cg", 0.03, "r", steps=1, settings=QUICK)
    again = selfcal.train("builtin:moons", "cg", 0.03, "r", steps=1, settings=QUICK)
    assert again.config == run.config
    assert torch.equal(again.data.x, run.data.x)


def test_the_command_line(pile, monkeypatch, capsys):
    monkeypatch.chdir(pile.parent)
    words = ["train", "pile", "--out", "r", "--labels", "labels.csv", "--steps", 1, "--method", "cg"]
    words += [word for setting in QUICK for word in ("--set", setting)]
    code, _, said = typed(capsys, *words)
    assert code == 2
    for part in ("different sizes: 0.png is 6×9", "--size 6", "broken.png cannot be read as an image (it is empty)"):
        assert part in said
    assert not (pile.parent / "r").exists()
    code, _, said = typed(capsys, *words, "--size", 4, "--skip-broken", "--test-labels", "judge.tsv")
    assert code == 0
    for part in (
        "pile: 6 images of 4×4, colour",
        "labels used: a 1, b 1",
        "2 labels from labels.csv; 4 images are used without a label; 2 labels more are kept back, to judge by",
        "skipped, since they cannot be read: broken.png (it is empty)",
    ):
        assert part in said
