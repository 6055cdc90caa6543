"""Labels by click, as a table that train takes; nothing is ever written over."""

from __future__ import annotations

import shlex

import numpy as np
import pytest
import torch
from PIL import Image

import selfcal
from command_line import typed
from selfcal.app.labelling import MOST_CARDS, Labelling, free_name
from selfcal.core.errors import SelfcalError
from selfcal.data.labels import reveal
from selfcal.diffusion.scores import UNLABELED


def clicked(run, stack):
    """Every card on the stack labelled with its true class."""
    while stack.card is not None:
        stack = stack.labelled(run, run.classes[int(run.data.y[stack.card.place])])
    return stack


def test_suggested_clicked_saved_and_trained_on(own, capsys):
    stack = clicked(own, Labelling().with_suggestions(own, 5))
    assert stack.unsaved == 5
    stack, said = stack.save(own)
    assert stack.unsaved == 0
    table = own.path / "labels" / "labels-001.csv"
    assert f"5 new labels saved, together with 10 known ones, in {table}." in said
    _, y = reveal(own.data, str(table), 0)
    assert (y != UNLABELED).sum() == 15
    assert torch.equal(y[y != UNLABELED], own.data.y[y != UNLABELED])
    assert (y[own.pool.labelled] != UNLABELED).all()
    command = shlex.split(said.splitlines()[1])
    code, _, err = typed(capsys, *command[1:])  # as it stands on the page
    assert code == 0, err
    again = selfcal.load(command[-1])
    assert len(again.pool.labelled) == 15
    assert again.config["score_from"], "the score model is taken over"


def test_each_save_has_a_name_of_its_own(own):
    stack = clicked(own, Labelling().with_suggestions(own, 2))
    first = stack.save(own)[1]
    before = (own.path / "labels" / "labels-001.csv").read_bytes()
    more = clicked(own, stack.with_suggestions(own, 3))
    assert len({card.place for card in more.cards}) == 5, "what has been labelled is not suggested again"
    assert "labels-001.csv" in first
    assert "labels-002.csv" in more.save(own)[1]
    assert (own.path / "labels" / "labels-001.csv").read_bytes() == before
    (own.path / "labels" / "labels-009.csv").write_text("mine")
    assert free_name(own.path / "labels").name == "labels-010.csv"


def test_back_skip_and_relabel(own):
    stack = Labelling().with_suggestions(own, 3)
    stack = stack.labelled(own, "4").skipped().labelled(own, "7")
    assert [card.label for card in stack.cards] == [4, None, 7]
    assert stack.card is None
    assert stack.labelled(own, "1") is stack, "a click too many changes nothing"
    assert stack.skipped().at == 3
    again = stack.back().back().back().back().labelled(own, "5")
    assert [card.label for card in again.cards] == [5, None, 7]
    saved, _ = again.save(own)
    assert saved.unsaved == 0
    assert saved.back().labelled(own, "2").unsaved == 1, "another label for the same image is not saved yet"


def test_nothing_is_saved_of_nothing(own):
    with pytest.raises(SelfcalError, match="nothing has been labelled yet"):
        Labelling().with_suggestions(own, 1).save(own)
    assert not (own.path / "labels").exists()


def test_a_full_disk_leaves_no_table(own, monkeypatch):
    stack = clicked(own, Labelling().with_suggestions(own, 1))

    def full(path, text, new):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("selfcal.app.labelling.write_text", full)
    with pytest.raises(SelfcalError, match="No space left on device"):
        stack.save(own)
    assert list((own.path / "labels").iterdir()) == []


def test_an_image_of_the_pile_is_found_there_and_a_strange_one_refused(own):
    place = int(own.pool.unlabelled[4])
    stack = Labelling().with_image(own, own.data.x[place : place + 1])
    assert stack.card.place == place
    assert len(stack.with_image(own, own.data.x[place : place + 1]).cards) == 1
    known = int(own.pool.labelled[0])
    with pytest.raises(SelfcalError, match="has the label"):
        stack.with_image(own, own.data.x[known : known + 1])
    with pytest.raises(SelfcalError, match="only a folder of images can be added to"):
        stack.with_image(own, -own.data.x[place : place + 1])


def test_there_is_a_last_card(own):
    full = Labelling(cards=Labelling().with_suggestions(own, 1).cards * MOST_CARDS)
    with pytest.raises(SelfcalError, match="do not fit"):
        full.with_suggestions(own, 1)


def folder_of_photos(root):
    """Two classes and a pile, and names that need quoting."""
    rng = np.random.default_rng(0)
    for name in ("cat/a,1.png", "cat/b.png", 'dog/c"2.png', "dog/d.png", *(f"unlabeled/{i}.png" for i in range(12))):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(root / name)
    return root


def test_a_folder_grows_by_what_was_dropped_in(tmp_path, capsys):
    photos = folder_of_photos(tmp_path / "photos")
    settings = {"score.width": 16, "classifier.width": 16, "score.network": "mlp", "classifier.network": "mlp"}
    run = selfcal.train(photos, "cg", None, tmp_path / "run", steps=3, settings=settings)
    stack = Labelling().with_suggestions(run, 2).labelled(run, "cat").labelled(run, "dog")
    stack, said = stack.save(run)
    code, _, err = typed(capsys, *shlex.split(said.splitlines()[1])[1:])
    assert code == 0, err
    assert len(selfcal.load(f"{run.path}-labels-001").pool.labelled) == 6
    new = torch.full((1, 3, 8, 8), 0.5)
    stack, said = stack.with_image(run, new).labelled(run, "cat").save(run)
    folder = run.path / "labels" / "new-002"
    assert str(folder) in said
    (file,) = folder.iterdir()
    (photos / "unlabeled" / file.name).write_bytes(file.read_bytes())
    code, _, err = typed(capsys, *shlex.split(said.splitlines()[1])[1:])
    assert code == 0, err
    grown = selfcal.load(f"{run.path}-labels-002")
    assert len(grown.pool.labelled) == 7
    assert len(grown.data.x) == 17
