"""A comparison over values of a setting: a row for each, trained with it."""

from __future__ import annotations

import pytest

from selfcal.core.errors import SelfcalError
from selfcal.experiments.compare import compare
from selfcal.experiments.compare.page import write_page
from selfcal.experiments.compare.variants import base, changes_of, variants
from selfcal.run import load


def test_names_carry_what_is_varied():
    rows = variants(["cg", "cg-sc-all"], ["terms.sc_weight=1, 10", "classifier.width=8"])
    assert rows[1] == "cg terms.sc_weight=10 classifier.width=8"
    assert len(rows) == 4
    assert base(rows[3]) == "cg-sc-all"
    assert changes_of(rows[3]) == {"terms.sc_weight": "10", "classifier.width": "8"}
    assert variants(["cg"], []) == ["cg"]


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("terms.sc_weight", "not of the form"),
        ("terms.sc_weigth=1", "did you mean 'terms.sc_weight'"),
        ("score.width=8,16", "share data, noise and score model"),
        ("terms.sc_weight=1,../x", "cannot be part of a folder's name"),
        ("terms.sc_weight=1,-3", "terms.sc_weight"),
    ],
)
def test_what_cannot_be_varied(tmp_path, vary, message):
    with pytest.raises(SelfcalError, match=message):
        compare("moons", ["cg"], [0.05], 1, tmp_path / "g", vary=[vary])
    assert not (tmp_path / "g").exists()


def test_each_value_is_a_row_of_the_table(tmp_path):
    small = {"score.width": 8, "classifier.width": 8, "sampling.steps": 2}
    options = {"steps": 2, "count": 40, "settings": small, "jobs": 1, "vary": ["terms.sc_weight=1,10"]}
    grid = compare("moons", ["cg-sc-all"], [0.05], 1, tmp_path / "g", **options)
    assert [c.state(grid.out) for c in grid.cells] == ["done", "done"]
    weights = [load(c.run(grid.out)).settings.terms.sc_weight for c in grid.cells]
    assert weights == [1.0, 10.0]
    write_page(grid.out)
    table = (grid.out / "table.md").read_text()
    assert "cg-sc-all terms.sc_weight=1 " in table
    assert "cg-sc-all terms.sc_weight=10" in table
