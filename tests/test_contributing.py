"""The worked example of CONTRIBUTING must work as printed."""

from __future__ import annotations

import re
from pathlib import Path

import torch

import selfcal
from oracle import perturbed, three_classes
from selfcal.methods import table as methods
from selfcal.methods.reading import Reading

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")


def test_a_method_of_ones_own(tmp_path, monkeypatch):
    term_code, row_code = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    lines = [line for line in (term_code + row_code).splitlines() if line.strip()]
    assert len(lines) <= 25

    rooms = vars(methods) | {}
    exec(term_code, rooms)
    *definition, row = row_code.strip().split("\n\n\n")
    exec("\n".join(definition), rooms)
    monkeypatch.setitem(methods.METHODS, "cg-gn", eval(row, rooms))

    mixture = three_classes()
    batch = perturbed(mixture, 50, (0.1, 5.0))
    exact = mixture.conditional_score(batch.x, batch.sigma, batch.y) - mixture.score(batch.x, batch.sigma)
    expected = 0.5 * (batch.sigma[:, None] * exact).square().sum(1).mean()
    torch.testing.assert_close(rooms["gradient_norm"]()(Reading(mixture.log_joint, batch)), expected)

    run = selfcal.train("moons", "cg-gn", 0.05, tmp_path / "r", steps=20)
    assert '"gn"' in (run.path / "log.jsonl").read_text()
    assert len(selfcal.load(run.path).sample(count=3, steps=3)) == 3
