"""Batches: who is drawn, how often, and mirrored."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.data.labels import reveal
from selfcal.data.pool import Pool, mirrored_at_random
from selfcal.data.sources import load_data
from selfcal.diffusion.scores import UNLABELED

DIGITS = load_data("digits")


@settings(max_examples=30, deadline=None)
@given(size=st.integers(2, 65), seed=st.integers(0, 1000))
def test_half_labelled_batches_are_exactly_half_labelled(size, seed):
    pool = Pool(reveal(DIGITS, 0.02, seed=0)[1])
    pick = pool.half_labelled(size, torch.Generator().manual_seed(seed))
    labelled = pool.y[pick] != UNLABELED
    assert len(pick) == size
    assert int(labelled.sum()) == size - size // 2
    assert labelled[: size - size // 2].all()


def test_batches_of_a_fully_labelled_pool_are_plain():
    pool = Pool(DIGITS.y)
    rng = torch.Generator().manual_seed(0)
    pick = pool.half_labelled(20_000, rng)
    assert len(pick.unique()) > 1400
    assert torch.bincount(DIGITS.y[pick]).min() > 1700


def test_batches_are_uniform_within_each_half():
    pool = Pool(torch.tensor([0, 1, UNLABELED, UNLABELED, UNLABELED]))
    counts = torch.bincount(pool.half_labelled(60_000, torch.Generator().manual_seed(0)), minlength=5)
    torch.testing.assert_close(counts / 60_000, torch.tensor([0.25, 0.25, 1 / 6, 1 / 6, 1 / 6]), atol=0.01, rtol=0)


def test_flips_are_half_of_the_images_and_a_setting(tmp_path):
    x = torch.arange(12.0).view(1, 1, 3, 4).expand(1000, 1, 3, 4)
    y = mirrored_at_random(x, torch.Generator().manual_seed(0))
    flipped = (y == x.flip(-1)).flatten(1).all(1)
    assert ((y == x).flatten(1).all(1) ^ flipped).all()
    assert 430 < flipped.sum() < 570
    quick = {"score.width": 8, "classifier.width": 8}
    plain = selfcal.train("digits", "cg", "2/class", tmp_path / "a", steps=2, settings=quick)
    mirrored = selfcal.train("digits", "cg", "2/class", tmp_path / "b", steps=2, settings=quick | {"data.flips": True})
    hashes = [run.describe()["weights_sha256"] for run in (plain, mirrored)]
    assert hashes[0] != hashes[1]
    with pytest.raises(SelfcalError, match="mirrors images"):
        selfcal.train("moons", "cg", 0.1, tmp_path / "c", settings={"data.flips": True})
