"""The steps of a stage: what its terms are told."""

from __future__ import annotations

from accelerate import Accelerator

from selfcal.core.settings import resolve
from selfcal.data.labels import reveal
from selfcal.data.pool import Pool
from selfcal.data.sources import load_data
from selfcal.methods.stage import Context
from selfcal.methods.table import find
from selfcal.training.stage import Batches, new_learner, steps_of


def test_terms_are_told_how_much_of_the_training_is_left():
    data, seen = reveal(load_data("moons"), 0.03, 0)
    settings = resolve("moons", {"classifier.steps": 4})
    (stage,) = [s for s in find("cg-sc-all").stages(settings) if s.name == "classifier"]
    context, told = Context(settings, Pool(seen).label_fraction, {}), []
    objective = stage.objective(context)

    def listening(network, batch, left):
        told.append(left)
        return objective(network, batch, left)

    learner = new_learner(stage, settings, (2,), 2, 0, Accelerator(cpu=True))
    for _ in steps_of(stage, learner, listening, context, Batches(data.x, Pool(seen)), 0):
        pass
    assert told == [1.0, 0.75, 0.5, 0.25]
