"""The training loop: a generator that yields steps, so that logging and saving stay with the caller.

    learner = Learner(network, NetworkSettings(steps=1000), Accelerator())
    for step in learner.run(batch_at, losses_of):
        print(step.number, step.numbers())

Randomness is a function of (seed, network, step) and of nothing else. A run therefore continues
exactly from any step, and on any number of processes: each draws the whole batch and keeps its share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.settings import NetworkSettings
from selfcal.core.team import ALONE, Team
from selfcal.diffusion.noise import Noisy
from selfcal.methods.reading import Remembers
from selfcal.nets.precision import in_precision
from selfcal.training import memories
from selfcal.training.learning_rate import learning_rate
from selfcal.training.optimisers import OPTIMISERS, moments_of
from selfcal.training.processes import reduced


@dataclass(frozen=True)
class Step:
    """One optimiser step, as seen from outside; values stay on the device until someone reads them."""

    number: int  # steps done, this one included
    losses: dict[str, Tensor]  # each term before its weight, over the whole batch
    grad_norm: Tensor
    lr: float

    def numbers(self) -> dict[str, float]:
        """Every loss and the gradient's norm, fetched from the device at once."""
        values = torch.stack([*(loss.float() for loss in self.losses.values()), self.grad_norm.float()]).tolist()
        return dict(zip([*self.losses, "grad_norm"], values, strict=True))


LossesOf = Callable[[Callable[..., Tensor], Noisy], Mapping[str, tuple[float, Tensor]]]
"""What is minimised: a network and a batch -> by name (weight, loss)."""


def share(batch: Noisy, rank: int, world: int) -> Noisy:
    """Every world-th example: keeps a half-labelled batch half-labelled."""
    if world == 1:
        return batch
    return Noisy(*(getattr(batch, f.name)[rank::world] for f in fields(batch)))


def ramped_average(decay: float) -> Callable:
    """EMA whose decay ramps up as min(decay, (1+n)/(10+n)), so that early weights are soon forgotten."""

    @torch.no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], done: Tensor) -> None:
        n = float(done)
        torch._foreach_lerp_(averaged, current, 1 - min(decay, (1 + n) / (10 + n)))

    return update


class Learner:
    """A network with its optimiser, its average and its terms' memories: all the state that training changes."""

    def __init__(
        self, network: nn.Module, settings: NetworkSettings, accelerator: Accelerator, precision: str = "fp32"
    ) -> None:
        self.settings = settings
        self.accelerator = accelerator
        self.lr_factor = 1.0  # lowered after a rollback
        self.memories: dict[str, Remembers] = {}
        self.network = network.to(accelerator.device)
        self.seen = in_precision(self.network, precision)  # the network as its terms see it
        self.average = AveragedModel(self.network, multi_avg_fn=ramped_average(settings.ema))
        fused = accelerator.device.type in ("cpu", "cuda")
        make = look_up("optimiser", settings.optimiser, OPTIMISERS)
        self.optimiser = make(self.network.parameters(), settings, fused)
        self.step = 0

    def run(self, batch_at: Callable[[int], Noisy], losses_of: LossesOf) -> Iterator[Step]:
        """Steps from where we are to settings.steps; `batch_at` gets the number of steps done."""
        while self.step < self.settings.steps:
            yield self.advance(batch_at(self.step), losses_of)

    def advance(self, batch: Noisy, losses_of: LossesOf) -> Step:
        """One step on a whole batch, of which each process takes its share."""
        accelerator, parameters = self.accelerator, [p for p in self.network.parameters() if p.requires_grad]
        batch = share(batch, accelerator.process_index, accelerator.num_processes)
        batch = Noisy(*(getattr(batch, f.name).to(accelerator.device, non_blocking=True) for f in fields(batch)))
        lr = self.lr_factor * learning_rate(self.settings, self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = lr

        self.network.train()
        losses = losses_of(self.seen, batch)
        self.optimiser.zero_grad(set_to_none=True)
        accelerator.backward(torch.stack([weight * loss for weight, loss in losses.values()]).sum())
        values = {name: loss.detach() for name, (_, loss) in losses.items()}
        if accelerator.num_processes > 1:
            values = self._average_over_processes(parameters, values)
        norm = nn.utils.clip_grad_norm_(parameters, self.settings.clip)
        self.optimiser.step()
        self.average.update_parameters(self.network)
        self.step += 1
        return Step(self.step, values, norm.detach(), lr)

    def _average_over_processes(self, parameters: list[nn.Parameter], losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """One all-reduce of all gradients. Wrapping the network (DDP) would hook into the double backward.

        The losses travel along: what is logged, and what is judged as diverged, is the same everywhere.
        """
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flat = torch.cat([*(g.flatten() for g in gradients), *(loss.reshape(1) for loss in losses.values())])
        *averaged, means = reduced(self.accelerator, flat, "mean").split([*(g.numel() for g in gradients), len(losses)])
        for p, g in zip(parameters, averaged, strict=True):
            p.grad = g.view_as(p)
        return dict(zip(losses, means, strict=True))

    def state(self, team: Team = ALONE) -> dict[str, dict[str, Tensor]]:
        """Everything needed to go on, as groups of tensors: in the main process of a team, of all processes."""
        names = [name for name, _ in self.network.named_parameters()]
        moments = {
            f"{names[index]}.{key}": value
            for index, values in self.optimiser.state_dict()["state"].items()
            for key, value in values.items()
        }
        remembered = memories.packed(self.memories, team)
        return {
            "weights": self.network.state_dict(),
            "ema": self.average.module.state_dict(),
            "optimizer": moments,
            "terms": remembered,
        }

    def restore(self, step: int, state: Mapping[str, Mapping[str, Tensor]], team: Team = ALONE) -> None:
        """Go on from there; a state of another network, whoever wrote it, is refused."""
        try:
            self._restore(step, state)
            memories.unpack(state.get("terms", {}), self.memories, team)
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise SelfcalError(f"the checkpoint of step {step} does not fit this network: {error}") from None

    def _restore(self, step: int, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        self.network.load_state_dict(state["weights"])
        self.average.module.load_state_dict(state["ema"])
        self.average.n_averaged.fill_(step)
        if state["optimizer"] or step < self.settings.steps:  # an adopted network has none, and needs none
            self._restore_optimiser(state["optimizer"])
        self.step = step

    def _restore_optimiser(self, moments: Mapping[str, Tensor]) -> None:
        whole = self.optimiser.state_dict()
        for index, (name, parameter) in enumerate(self.network.named_parameters()):
            if not parameter.requires_grad:
                continue  # a frozen one has no moments
            kept = moments_of(self.optimiser, parameter)
            of_it = {m: moments[f"{name}.{m}"] for m in ("step", *kept)}
            if of_it["step"].numel() != 1 or any(of_it[m].shape != parameter.shape for m in kept):
                raise ValueError(f"the optimiser's moments of {name} are shaped differently")
            whole["state"][index] = of_it
        self.optimiser.load_state_dict(whole)
