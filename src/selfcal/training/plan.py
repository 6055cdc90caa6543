"""`selfcal train … --dry-run`: what a training would take on this machine. Nothing is written.

Work and memory are counted on a batch of two and grow with the batch; time is measured on the largest
batch that fits into half the memory and a few seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from selfcal.core.settings import Settings, resolve
from selfcal.data import Dataset, Pool, load_data, reveal
from selfcal.diffusion import samplers
from selfcal.diffusion.noise import Noisy
from selfcal.methods import table as methods
from selfcal.methods.table import Context, Stage
from selfcal.training import fit as fitting
from selfcal.training.loop import random_state

TRIAL = 2  # the batch on which work and memory are counted: one labelled, one unlabelled image
PATIENCE = 10.0  # seconds a timed step may take
COPIES = 5  # of the weights: themselves, their average, the gradient, Adam's two moments


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
    memory: float  # bytes: weights and all that goes with them, and what a step keeps for its gradient
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


def plan(
    data: str | Path,
    method: str = "cg-sc-all",
    labels: str | float = 0.02,
    *,
    seed: int = 0,
    steps: int | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
) -> Plan:
    """What `selfcal.train` with the same arguments would take."""
    row = methods.find(method)
    pile, seen = reveal(load_data(data), labels, seed)
    chosen = resolve(preset or fitting.default_preset(pile), settings, steps)
    accelerator, networks, found = Accelerator(), dict[str, nn.Module](), []
    for stage in row.stages(chosen):
        with torch.random.fork_rng():
            network, stage_plan = plan_stage(stage, chosen, pile, Pool(seen), networks, accelerator)
        networks[stage.role] = network.eval().requires_grad_(False)
        found.append(stage_plan)
    sampler = chosen.sampling.sampler
    walk = samplers.find(sampler)
    return Plan(tuple(found), sampler, walk.evaluations(chosen.sampling.steps or walk.steps))


def plan_stage(
    stage: Stage, settings: Settings, data: Dataset, pool: Pool, networks: Mapping[str, Any], accelerator: Accelerator
) -> tuple[nn.Module, StagePlan]:
    wanted = stage.settings(settings)
    step = trial_step(stage, settings, data, pool, networks, accelerator)
    held: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with Flops() as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        network = step(TRIAL)
    parameters = sum(t.numel() for t in network.state_dict().values())  # fixed frequencies too, as others count them
    weights = sum(p.untyped_storage().nbytes() for p in network.parameters())
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    activations = sum(size for place, size in held.items() if place not in own) / TRIAL

    seconds, batch = timed(step, TRIAL), TRIAL
    room = max(1.0, (0.5 * free_memory(accelerator.device) - COPIES * weights) / max(activations, 1))
    larger = int(min(wanted.batch, room, TRIAL * PATIENCE / seconds))
    if larger > TRIAL:
        seconds, batch = timed(step, larger), larger
    plan = StagePlan(
        name=stage.name,
        network=wanted.network,
        parameters=parameters,
        steps=wanted.steps,
        batch=wanted.batch,
        flops=counter.total / TRIAL * wanted.batch,
        memory=COPIES * weights + activations * wanted.batch,
        seconds=seconds / batch * wanted.batch,
        timed_batch=batch,
    )
    return network, plan


def trial_step(
    stage: Stage, settings: Settings, data: Dataset, pool: Pool, networks: Mapping[str, Any], accelerator: Accelerator
) -> Callable[[int], nn.Module]:
    """A function that does one step of the stage on a batch of the size it is given."""
    learner = fitting.new_learner(stage, settings, data.shape, len(data.classes), 0, accelerator)
    learner.settings = learner.settings.model_copy(update={"steps": 10**9})
    context = Context(settings, pool.label_fraction, dict(networks))
    terms, read = stage.terms(context), stage.read(context)
    size = TRIAL

    def batch_at(step: int) -> Noisy:
        rng = random_state(0, "plan", step)
        pick = stage.draw(pool, size, rng)
        return context.noise.perturb(data.x[pick], pool.y[pick], rng)

    def losses_of(network: nn.Module, batch: Noisy) -> dict[str, tuple[float, Tensor]]:
        reading = read(network, batch)
        return {name: (t.weight, t.term(reading)) for name, t in terms.items()}

    steps = learner.run(batch_at, losses_of)

    def step(batch: int) -> nn.Module:
        nonlocal size
        size = batch
        float(next(steps).grad_norm)  # waits for the device
        return learner.network

    return step


def timed(step: Callable[[int], Any], batch: int) -> float:
    """The quickest of three steps, or of fewer if they are slow."""
    best, began = float("inf"), time.perf_counter()
    for _ in range(3):
        start = time.perf_counter()
        step(batch)
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - began > PATIENCE:
            break
    return best


def free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
