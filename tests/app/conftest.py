"""Two runs of few steps: wrong pictures, but real runs."""

from __future__ import annotations

import pytest

import selfcal

SMALL = {"score.width": 16, "classifier.width": 16, "conditional.width": 16, "run.preview_every": 0}


@pytest.fixture(scope="session")
def guided(tmp_path_factory):
    return selfcal.train(
        "digits", "cg-sc-all", "1/class", tmp_path_factory.mktemp("app") / "guided", steps=20, settings=SMALL
    )


@pytest.fixture(scope="session")
def told(tmp_path_factory):
    """A conditional model: no guide to ask, nothing to scale."""
    return selfcal.train("digits", "cond", "1/class", tmp_path_factory.mktemp("app") / "told", steps=5, settings=SMALL)


@pytest.fixture
def own(guided, tmp_path):
    """A copy of the guided run, to write into."""
    import shutil

    shutil.copytree(guided.path, tmp_path / "run")
    return selfcal.load(tmp_path / "run")
