"""What `Run` adds to its directory: sampling, predicting and evaluating by the names users type."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import selfcal


def test_a_guide_the_method_has_no_network_for(tmp_path):
    run = selfcal.train("moons", "cond", 0.05, tmp_path / "r", steps=5)
    with pytest.raises(selfcal.SelfcalError, match="needs a classifier network"):
        run.sample(count=2, guide="classifier-only")
    with pytest.raises(selfcal.SelfcalError, match="no classifier to predict"):
        run.predict_proba(run.data.x[:2])


def test_a_plain_conditional_model_refuses_a_scale(tmp_path):
    run = selfcal.train("moons", "cond", 0.05, tmp_path / "r", steps=5)
    run.sample(count=2, steps=2, scale=0)
    with pytest.raises(selfcal.SelfcalError, match="no guidance to scale"):
        run.sample(count=2, steps=2, scale=1.5)


def test_a_run_with_the_u_net_samples_and_continues(tmp_path):
    changes = {
        f"{role}.{key}": value
        for role in ("score", "classifier")
        for key, value in {"network": "ncsnpp", "width": 8, "blocks": 1, "multipliers": (1, 2), "form": "ve"}.items()
    }
    run = selfcal.train("digits", "cg-sc-all", "2/class", tmp_path / "r", steps=3, settings=changes)
    opened = selfcal.load(run.path)
    assert opened.sample(classes=[3], count=2, steps=2).x.isfinite().all()
    x = opened.data.x_test[:30]
    whole = opened.predict_proba(x)
    in_parts = replace(opened.generator, batch=7)  # large test sets do not pass through a U-Net in one go
    torch.testing.assert_close(in_parts.predict_proba(x), whole)
