"""A model trained with diffusers alone, and a run that adopted it."""

from __future__ import annotations

import pytest
import torch

import selfcal


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A tiny DDPM, trained and saved with diffusers alone."""
    from tiny_pipelines import save_trained  # here: it skips where there is no diffusers

    torch.set_num_threads(1)
    return save_trained(tmp_path_factory.mktemp("ddpm"))


@pytest.fixture(scope="session")
def adopted(trained, tmp_path_factory):
    from tiny_pipelines import GUIDE

    out = tmp_path_factory.mktemp("adopted") / "run"
    return selfcal.adopt(trained, "digits", "4/class", "cg", out, settings=GUIDE)
