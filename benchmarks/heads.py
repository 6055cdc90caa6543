"""What a step of a convolutional guide costs: with the energy head against the pooled one, with self-calibration."""

from __future__ import annotations

import statistics
import time

import torch
from accelerate import Accelerator

from selfcal.data.dataset import Dataset, no_test
from selfcal.data.pool import Pool
from selfcal.methods.stage import Context
from selfcal.training.plan import Trial
from selfcal.training.request import Request
from selfcal.training.stage import Batches

ROUNDS = 25
IMAGES = 2000  # of which 40 are labelled: few, as where self-calibration is for


def guide_steps() -> dict[str, float]:
    """Median seconds of a step on the fashion-small network and batch, side by side, one thread."""
    x = torch.rand(IMAGES, 1, 28, 28) * 2 - 1
    y, names = torch.arange(IMAGES) % 10, tuple(map(str, range(IMAGES)))
    data = Dataset("noise", x, y, tuple("0123456789"), names, *no_test(x))
    rivals = {"ce": ("cg", "energy"), "ce, pooled": ("cg", "pooled"), "sc": ("cg-sc-all", "energy")}
    trials, sizes, times = {}, {}, {name: list[float]() for name in rivals}
    for name, (method, head) in rivals.items():
        request = Request("noise", method, "4/class", preset="fashion-small", settings={"classifier.head": head})
        wanted = request.prepared(data)
        batches = Batches(wanted.data.x, Pool(wanted.labels))
        context = Context(wanted.settings, batches.pool.label_fraction, {})
        trials[name] = Trial(wanted.method.stages(wanted.settings)[-1], context, batches, wanted.data, Accelerator())
        sizes[name] = wanted.settings.classifier.batch
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for i in range(ROUNDS):
        for name, trial in trials.items():
            began = time.perf_counter()
            trial.step(sizes[name])
            if i >= 3:
                times[name].append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    return {name: statistics.median(t) for name, t in times.items()}
