"""What a training would take, against numbers on paper."""

from __future__ import annotations

import pytest

from selfcal.methods.table import METHODS
from selfcal.training.plan import plan
from selfcal.training.request import Request


def test_flops_and_parameters_of_an_mlp_are_those_on_paper():
    """A DSM step is a forward and a backward pass: each matrix product once, then twice (once, for the first)."""
    width, blocks = 32, 2
    quick = {"score.width": width, "score.blocks": blocks, "score.batch": 10, "classifier.width": 8}
    score, classifier = plan(Request("digits", "cg-sc-all", 0.02, steps=5, settings=quick).prepared()).stages
    layers = [(64, width), *[(width, width)] * 2 * blocks, (width, 64), (64, 2 * width * blocks), (32, 64)]
    forward = sum(2 * a * b for a, b in layers)
    inputs_need_no_gradient = 2 * 64 * width + 2 * 32 * 64
    assert score.flops == 10 * (3 * forward - inputs_need_no_gradient)
    frequencies = 16
    assert score.parameters == sum(a * b + b for a, b in layers) + frequencies
    assert score.memory > 5 * 4 * score.parameters
    assert (score.steps, score.batch) == (5, 10)
    assert score.hours == pytest.approx(5 * score.seconds / 3600)
    assert classifier.flops > 0


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_planned(method):
    small = {f"{role}.width": 8 for role in ("score", "classifier", "conditional")}
    assert all(s.flops > 0 for s in plan(Request("digits", method, "2/class", settings=small).prepared()).stages)
