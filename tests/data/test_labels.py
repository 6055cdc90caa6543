from __future__ import annotations

import dataclasses

import pytest
import torch

from selfcal.core.errors import SelfcalError
from selfcal.data.labels import reveal
from selfcal.data.sources import load_data
from selfcal.diffusion.scores import UNLABELED

DIGITS = load_data("digits")


@pytest.mark.parametrize(("spec", "per_class"), [(0.02, 3), ("0.02", 3), ("4/class", 4)])
def test_splits_are_stratified(spec, per_class):
    _, seen = reveal(DIGITS, spec, seed=0)
    assert torch.bincount(seen[seen >= 0]).tolist() == [per_class] * 10
    shown = seen != UNLABELED
    assert torch.equal(seen[shown], DIGITS.y[shown])


def test_everything_labelled():
    _, seen = reveal(DIGITS, 1.0, seed=0)
    assert torch.equal(seen, DIGITS.y)


def test_split_depends_on_the_seed_alone():
    torch.manual_seed(1)
    first = reveal(DIGITS, 0.05, seed=3)[1]
    torch.manual_seed(2)
    assert torch.equal(first, reveal(DIGITS, 0.05, seed=3)[1])
    assert not torch.equal(first, reveal(DIGITS, 0.05, seed=4)[1])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("1.5", "at most at 1"),
        ("0", "above 0"),
        ("-0.1", "above 0"),
        ("nan", "above 0"),
        ("0.001", "without a label"),
        ("0/class", "at least 1 label"),
        ("-3/class", "at least 1 label"),
        ("1000/class", "asks for 1000 labels of class '0', which has 142"),
        ("many", "neither a fraction"),
        ("missing.csv", "does not exist"),
    ],
)
def test_refusals(spec, message):
    with pytest.raises(SelfcalError, match=message):
        reveal(DIGITS, spec, seed=0)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_csv_labels_a_pile_without_classes(tmp_path):
    pile = dataclasses.replace(DIGITS, classes=(), y=torch.full_like(DIGITS.y, UNLABELED))
    one, two = pile.names[0], pile.names[5]
    data, seen = reveal(pile, write(tmp_path / "l.csv", f"file,label\n{one},good\n{two},bad\n"), seed=0)
    assert data.classes == ("bad", "good")
    assert (seen >= 0).sum() == 2
    assert (seen[0], seen[5]) == (1, 0)
    assert data.y[0] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\nnope.png,3\n", "'nope.png', which is not in digits"),
        ("file,label\n10,eleven\n", "label 'eleven'; the classes are"),
        ("file,label\n10,0\n", "class '1' has no label"),
        ("name,kind\n1,1\n", "columns file and label"),
        ("file,label\n", "no rows"),
        ("file,label\n,1\n", "line 2 lacks"),
        ("file,label\n10,\n", "no rows with a label"),
        ("file,label\n1,1\n1,2\n", "two labels"),
    ],
)
def test_csv_refusals(tmp_path, text, message):
    with pytest.raises(SelfcalError, match=message):
        reveal(DIGITS, write(tmp_path / "l.csv", text), seed=0)


def test_csv_of_bytes_that_are_not_text(tmp_path):
    (tmp_path / "l.csv").write_bytes(b"file,label\n\xff\xfe\x00,1\n")
    with pytest.raises(SelfcalError, match="cannot be read as a CSV"):
        reveal(DIGITS, str(tmp_path / "l.csv"), seed=0)


def test_a_pile_without_labels_asks_for_a_csv():
    pile = dataclasses.replace(DIGITS, classes=(), y=torch.full_like(DIGITS.y, UNLABELED))
    with pytest.raises(SelfcalError, match="pass a CSV"):
        reveal(pile, 0.02, seed=0)
