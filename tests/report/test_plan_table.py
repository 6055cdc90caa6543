"""A plan in words."""

from __future__ import annotations

from selfcal.report.units import duration, scaled


def test_words_for_large_numbers():
    assert scaled(2.1e9) == "2.1 G"
    assert scaled(12) == "12 "
    assert duration(100) == "4.2 days"
    assert duration(0.01) == "36 s"
