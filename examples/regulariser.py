"""A regulariser of one's own: a penalty on long guidance gradients, beside cross-entropy, in selfcal's own loop.

As a method that all commands know it is one file and one row: see CONTRIBUTING.md.
"""

import sys

import torch
from accelerate import Accelerator

from selfcal.core.randomness import random_state
from selfcal.core.settings import NetworkSettings, Settings
from selfcal.data.labels import reveal
from selfcal.data.pool import Pool
from selfcal.data.sources import load_data
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import like
from selfcal.methods.reading import Reading
from selfcal.nets.builders import build_classifier
from selfcal.training.loop import Learner

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
data, y = reveal(load_data("digits"), 0.02, seed=0)
pool, noise = Pool(y), Noise(0.02, 10.0)


def batch_at(step):
    rng = random_state(0, "classifier", step)
    pick = pool.from_labelled(64, rng)
    return noise.perturb(data.x[pick], y[pick], rng)


def losses(network, batch):
    r = Reading(network, batch)
    gradient = r.grad(r.log_likelihood())
    length = (like(batch.sigma, gradient) * gradient).square().flatten(1).sum(1)
    return {"ce": (1.0, -r.log_likelihood().mean()), "length": (0.01, 0.5 * length.mean())}


learner = Learner(build_classifier(Settings(), data.shape, 10), NetworkSettings(steps=steps), Accelerator())
for step in learner.run(batch_at, losses):
    if step.number % max(1, steps // 10) == 0:
        print(step.number, {name: round(value, 3) for name, value in step.numbers().items()})
logits = learner.average.module(data.x_test, torch.full((len(data.x_test),), noise.sigma_min))
print(f"accuracy {(logits.argmax(-1) == data.y_test).float().mean():.3f}")
