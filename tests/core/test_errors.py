"""Names that are not in a table."""

from __future__ import annotations

import pytest

from selfcal.core.errors import SelfcalError, look_up

TABLE = {"heun": 1, "euler": 2}


def test_a_row_by_its_name():
    assert look_up("sampler", "euler", TABLE) == 2


@pytest.mark.parametrize(("name", "near"), [("hoin", "heun"), ("Eul", "euler"), ("eul", "euler")])
def test_an_unknown_name_offers_the_nearest(name, near):
    with pytest.raises(SelfcalError, match=f"unknown sampler {name!r}; did you mean {near!r}"):
        look_up("sampler", name, TABLE)


def test_a_name_like_none_lists_them_all():
    with pytest.raises(SelfcalError, match=r"unknown sampler 'xyz'; known: euler, heun$"):
        look_up("sampler", "xyz", TABLE)
