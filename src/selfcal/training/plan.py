"""`selfcal train … --dry-run`: what a training would take on this machine. Nothing is written.

Work and memory are counted on a batch of two and grow with the batch; time is measured on the largest
batch that fits into half the memory and a few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from selfcal.core import bounds
from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.randomness import random_state
from selfcal.core.settings import NetworkSettings
from selfcal.data.dataset import Dataset
from selfcal.data.pool import Pool
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.methods.stage import Context, Stage
from selfcal.training import processes
from selfcal.training.processes import reduced
from selfcal.training.request import COPIES, Prepared
from selfcal.training.stage import Batches, new_learner

TRIAL = 2  # the batch on which work and memory are counted: one labelled, one unlabelled image
PATIENCE = 10.0  # seconds a timed step may take


class Flops(TorchDispatchMode):
    """Adds up torch's own counts of matrix products and convolutions.

    torch's FlopCounterMode also follows modules, by hooks that a gradient within the loss breaks.
    """

    total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        count = flop_registry.get(function._overloadpacket)
        if count is not None:
            self.total += count(*args, **(kwargs or {}), out_val=result)
        return result


@dataclass(frozen=True)
class StagePlan:
    """One network's training."""

    name: str
    network: str
    parameters: int
    steps: int
    batch: int
    flops: float  # of one step
    memory: float  # bytes of one process: weights and all that goes with them, and what a step keeps for its gradient
    seconds: float  # of one step, on this machine
    timed_batch: int

    @property
    def hours(self) -> float:
        return self.steps * self.seconds / 3600


@dataclass(frozen=True)
class Plan:
    stages: tuple[StagePlan, ...]
    sampler: str
    evaluations: int  # of the guided score, to sample one batch
    processes: int = 1  # that share every batch


def plan(wanted: Prepared) -> Plan:
    """What `fit` of the same request would take."""
    accelerator = processes.accelerator()
    check_shares(wanted, accelerator.num_processes)
    found = trials(wanted, accelerator)
    stages = [plan_stage(trial, stage.settings(wanted.settings)) for stage, trial in found]
    sampling = wanted.settings.sampling
    walk = look_up("sampler", sampling.sampler, SAMPLERS)
    evaluations = walk.evaluations(sampling.steps or walk.steps)
    return Plan(tuple(stages), sampling.sampler, evaluations, accelerator.num_processes)


def check_shares(wanted: Prepared, world: int) -> None:
    """Equal shares of labelled and unlabelled examples: only then is the mean of means the mean."""
    for stage in wanted.method.stages(wanted.settings) if world > 1 else ():
        batch = stage.settings(wanted.settings).batch
        if batch % (2 * world):
            raise SelfcalError(
                f"{stage.role}.batch = {batch} cannot be shared evenly by {world} processes; "
                f"choose a multiple of {2 * world}"
            )


def trials(wanted: Prepared, accelerator: Accelerator) -> Iterator[tuple[Stage, Trial]]:
    """Every stage with a trial of it, in order; a later one may ask for the networks of those before."""
    networks: dict[str, nn.Module] = {}
    batches = Batches(wanted.data.x, Pool(wanted.labels))
    for stage in wanted.method.stages(wanted.settings):
        context = Context(wanted.settings, batches.pool.label_fraction, dict(networks))
        with torch.random.fork_rng():
            trial = Trial(stage, context, batches, wanted.data, accelerator)
            yield stage, trial
        networks[stage.role] = trial.learner.network.eval().requires_grad_(False)


class Trial:
    """Steps of one stage, on batches of any size."""

    def __init__(
        self, stage: Stage, context: Context, batches: Batches, data: Dataset, accelerator: Accelerator
    ) -> None:
        self.stage, self.context, self.batches = stage, context, batches
        self.learner = new_learner(stage, context.settings, data.shape, len(data.classes), 0, accelerator)
        self.objective = stage.objective(context)

    def step(self, size: int) -> None:
        batch = self.batches.draw(self.stage, self.context, size, random_state(0, "plan", self.learner.step))
        float(self.learner.advance(batch, self.objective).grad_norm)  # waits for the device


def plan_stage(trial: Trial, wanted: NetworkSettings) -> StagePlan:
    flops, activations = work_and_memory(trial)
    network, accelerator = trial.learner.network, trial.learner.accelerator
    world, batch = accelerator.num_processes, TRIAL * accelerator.num_processes
    weights = sum(p.untyped_storage().nbytes() for p in network.parameters())
    seconds = timed(trial, batch)
    free = of_all(free_memory(accelerator.device), accelerator)
    room = world * max(1.0, (0.5 * free - COPIES * weights) / max(activations, 1))
    larger = int(min(wanted.batch, room, batch * PATIENCE / seconds))
    larger -= larger % (2 * world) if world > 1 else 0  # equal shares
    if larger > batch:
        seconds, batch = timed(trial, larger), larger
    return StagePlan(
        name=trial.stage.name,
        network=wanted.network,
        parameters=sum(t.numel() for t in network.state_dict().values()),  # fixed frequencies too, as others count
        steps=wanted.steps,
        batch=wanted.batch,
        flops=flops * wanted.batch,
        memory=COPIES * weights + activations * wanted.batch / world,
        seconds=seconds / batch * wanted.batch,
        timed_batch=batch,
    )


def work_and_memory(trial: Trial) -> tuple[float, float]:
    """Of one image in a step: FLOPs, and bytes kept for its gradient."""
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with Flops() as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        trial.step(TRIAL * trial.learner.accelerator.num_processes)  # of which this process takes its share
    own = {p.untyped_storage().data_ptr() for p in trial.learner.network.parameters()}
    return counter.total / TRIAL, sum(size for place, size in sizes.items() if place not in own) / TRIAL


def timed(trial: Trial, batch: int) -> float:
    """The quickest of three steps, or of fewer if they are slow; the same in all processes."""
    best, spent = float("inf"), 0.0
    for _ in range(3):
        start = time.perf_counter()
        trial.step(batch)
        took = of_all(time.perf_counter() - start, trial.learner.accelerator)
        best, spent = min(best, took), spent + took
        if spent > PATIENCE:
            break
    return best


def of_all(value: float, accelerator: Accelerator) -> float:
    """The mean over the processes, which must all decide alike."""
    return float(reduced(accelerator, torch.tensor(value, device=accelerator.device), "mean"))


def free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return bounds.free_memory()
