"""The training loop: a generator that yields steps, so that logging and saving stay with the caller.

Randomness is a function of (seed, network, step) and of nothing else. A run therefore continues
exactly from any step, and on any number of processes: each draws the whole batch and keeps its share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from selfcal.config import NetworkSettings
from selfcal.noise import Noisy


@dataclass(frozen=True)
class Step:
    """One optimiser step, as seen from outside; values stay on the device until someone reads them."""

    number: int  # steps done, this one included
    losses: dict[str, Tensor]  # each term before its weight
    grad_norm: Tensor
    lr: float


def random_state(seed: int, name: str, step: int) -> torch.Generator:
    """A generator for this step alone; consecutive steps never share one within a run."""
    start = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4])
    return torch.Generator().manual_seed((start + step) % 2**32)


def share(batch: Noisy, rank: int, world: int) -> Noisy:
    """Every world-th example: keeps a half-labelled batch half-labelled."""
    if world == 1:
        return batch
    return Noisy(*(getattr(batch, f.name)[rank::world] for f in fields(batch)))


def learning_rate(settings: NetworkSettings, step: int) -> float:
    """Linear warm-up, then (1 − step/steps)^decay."""
    warm = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    return settings.lr * warm * (1 - step / settings.steps) ** settings.decay


def ramped_average(decay: float) -> Callable:
    """EMA whose decay ramps up as min(decay, (1+n)/(10+n)), so that early weights are soon forgotten."""

    @torch.no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], done: Tensor) -> None:
        n = float(done)
        torch._foreach_lerp_(averaged, current, 1 - min(decay, (1 + n) / (10 + n)))

    return update


class Learner:
    """A network with its optimiser and its average: all the state that training changes."""

    def __init__(self, network: nn.Module, settings: NetworkSettings, accelerator: Accelerator) -> None:
        self.settings = settings
        self.accelerator = accelerator
        self.network = network.to(accelerator.device)
        self.average = AveragedModel(self.network, multi_avg_fn=ramped_average(settings.ema))
        fused = accelerator.device.type in ("cpu", "cuda")
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=settings.lr, fused=fused)
        self.step = 0

    def run(
        self,
        batch_at: Callable[[int], Noisy],
        losses_of: Callable[[nn.Module, Noisy], Mapping[str, tuple[float, Tensor]]],
    ) -> Iterator[Step]:
        """Steps from where we are to settings.steps."""
        rank, world, device = (
            self.accelerator.process_index,
            self.accelerator.num_processes,
            self.accelerator.device,
        )
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        self.network.train()
        while self.step < self.settings.steps:
            batch = share(batch_at(self.step), rank, world)
            batch = Noisy(*(getattr(batch, f.name).to(device) for f in fields(batch)))
            lr = learning_rate(self.settings, self.step)
            for group in self.optimiser.param_groups:
                group["lr"] = lr

            losses = losses_of(self.network, batch)
            self.optimiser.zero_grad(set_to_none=True)
            total = torch.stack([weight * loss for weight, loss in losses.values()]).sum()
            self.accelerator.backward(total)
            if world > 1:
                self._average_gradients(parameters)
            norm = nn.utils.clip_grad_norm_(parameters, self.settings.clip)
            self.optimiser.step()
            self.average.update_parameters(self.network)
            self.step += 1
            yield Step(self.step, {name: loss.detach() for name, (_, loss) in losses.items()}, norm.detach(), lr)

    def _average_gradients(self, parameters: list[nn.Parameter]) -> None:
        """One all-reduce of all gradients. Wrapping the network (DDP) would hook into the double backward."""
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flat = torch.cat([g.flatten() for g in gradients])
        flat = self.accelerator.reduce(flat, reduction="mean")
        for p, g in zip(parameters, flat.split([g.numel() for g in gradients]), strict=True):
            p.grad = g.view_as(p)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Everything needed to go on, as groups of tensors."""
        names = [name for name, _ in self.network.named_parameters()]
        moments = {
            f"{names[index]}.{key}": value
            for index, values in self.optimiser.state_dict()["state"].items()
            for key, value in values.items()
        }
        return {
            "weights": self.network.state_dict(),
            "ema": self.average.module.state_dict(),
            "optimizer": moments,
        }

    def restore(self, step: int, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        self.network.load_state_dict(state["weights"])
        self.average.module.load_state_dict(state["ema"])
        self.average.n_averaged.fill_(step)
        names = [name for name, _ in self.network.named_parameters()]
        whole = self.optimiser.state_dict()
        for key, value in state["optimizer"].items():
            name, _, moment = key.rpartition(".")
            whole["state"].setdefault(names.index(name), {})[moment] = value
        self.optimiser.load_state_dict(whole)
        self.step = step
