"""Run by one or two processes: the first step's gradient of every network of a method, into a file."""

from __future__ import annotations

import sys

import torch
from safetensors.torch import save_file

from selfcal.core.settings import resolve
from selfcal.data.labels import reveal
from selfcal.data.pool import Pool
from selfcal.data.sources import load_data
from selfcal.methods.stage import Context
from selfcal.methods.table import METHODS
from selfcal.training import processes
from selfcal.training.stage import Batches, new_learner, steps_of


def main(file: str) -> None:
    torch.set_num_threads(1)
    accelerator = processes.accelerator()
    data, seen = reveal(load_data("moons"), 0.03, 0)
    settings = resolve("moons", {f"{n}.clip": 1e9 for n in ("score", "classifier", "conditional")})
    found = {}
    for method in ("cg", "cg-sc-labeled", "cg-sc-all", "cg-dlsm", "cond"):
        networks: dict[str, torch.nn.Module] = {}
        for stage in METHODS[method].stages(settings):
            learner = new_learner(stage, settings, (2,), 2, 0, accelerator)
            context = Context(settings, Pool(seen).label_fraction, dict(networks))
            objective, batches = stage.objective(context), Batches(data.x, Pool(seen))
            step = next(iter(steps_of(stage, learner, objective, context, batches, 0)))
            networks[stage.role] = learner.average.module.eval().requires_grad_(False)
            for name, parameter in learner.network.named_parameters():
                if parameter.grad is not None:
                    found[f"{method}/{stage.name}/{name}"] = parameter.grad.clone()
            for name, loss in step.losses.items():
                found[f"{method}/{stage.name}/loss/{name}"] = loss.reshape(1).clone()
            # The next stage must see the same network, whatever the last bits of this step were.
            networks[stage.role].load_state_dict(
                new_learner(stage, settings, (2,), 2, 0, accelerator).network.state_dict()
            )
    if accelerator.is_main_process:
        save_file(found, file)
    if accelerator.num_processes > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
