"""Networks that are modules of the user's own, as scores of (x, σ) in our units: what they predict, what they are told.

A run keeps such a network's weights and its conventions, never its code: the user brings the module along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.nets.forms import Coefficients, Form

Pair = tuple[Tensor | float, Tensor]

READINGS: dict[str, Callable[[Tensor, Tensor], Pair]] = {
    "epsilon": lambda sigma, total: (1.0, -sigma),
    "v": lambda sigma, total: (total**-2, -sigma / total),
    "x0": lambda sigma, total: (0.0, torch.ones_like(sigma)),
    "score": lambda sigma, total: (1.0, sigma**2 / total),
}
"""By what a network F predicts, c_skip and c_out of D = c_skip x + c_out F, where F sees x/total.

total is √(1+σ²) for a model that keeps the variance (DDPM), else 1; the noise, v = √ᾱ z − √(1−ᾱ) x₀, the clean image,
or the score ∇ log p of its own input.
"""


@dataclass(frozen=True)
class OwnForm(Form):
    """Of a module by its conventions. `told` is what it is told at each of the σ in `sigmas`, σ itself if empty."""

    predicts: str
    keeps_variance: bool
    sigmas: tuple[float, ...] = ()  # ascending
    told: tuple[float, ...] = ()

    @cached_property
    def table(self) -> tuple[Tensor, Tensor]:
        logs = torch.tensor(self.sigmas, dtype=torch.float64, device="cpu").log()
        return logs, torch.tensor(self.told, dtype=torch.float64, device="cpu")

    def level(self, sigma: Tensor) -> Tensor:
        """What the network is told of σ; between two levels, in proportion to ln σ."""
        if not self.told:
            return sigma
        logs, told = (part.to(sigma.device) for part in self.table)
        wanted = sigma.double().log()
        above = torch.searchsorted(logs, wanted.contiguous()).clamp(1, len(logs) - 1)
        share = ((wanted - logs[above - 1]) / (logs[above] - logs[above - 1])).clamp(0, 1)
        return torch.lerp(told[above - 1], told[above], share).to(sigma.dtype)

    def __call__(self, sigma: Tensor) -> Coefficients:
        return self.read_as(self.predicts, sigma)

    def read_as(self, predicts: str, sigma: Tensor) -> Coefficients:
        total = (1 + sigma**2).sqrt() if self.keeps_variance else torch.ones_like(sigma)
        skip, out = READINGS[predicts](sigma, total)
        return Coefficients(skip, out, total, self.level(sigma))


def own_form(adopted: Mapping[str, Any]) -> Form:
    """From what was noted at adoption."""
    form = adopted["form"]
    return OwnForm(form["predicts"], form["keeps_variance"], tuple(form["sigmas"]), tuple(form["told"]))


class OwnModule(nn.Module):
    """The user's network F(x, level), whatever it is: a module, or any callable."""

    def __init__(self, network: Callable[..., Any], whole: bool = False) -> None:
        super().__init__()
        self.inner = network  # a module's weights become this one's
        self.whole = whole  # it takes whole levels only

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        weights = next((p for p in self.parameters() if p.is_floating_point()), x)
        level = level.round().long() if self.whole else level.to(weights.dtype)
        out = self.inner(x.to(weights.dtype), level)
        out = getattr(out, "sample", out)  # as diffusers' networks answer
        out = out[0] if isinstance(out, tuple) else out
        if not isinstance(out, Tensor) or out.shape != x.shape:
            found = f"shaped {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise SelfcalError(
                f"called with x {tuple(x.shape)} and t {tuple(level.shape)}, the adopted module gives {found}; "
                f"a tensor shaped as x is needed (wrap it if it also predicts a variance)"
            )
        return out.to(x.dtype)


class Elsewhere(nn.Module):
    """Stands where a module of the user's own belongs."""

    def __init__(self, adopted: Mapping[str, Any]) -> None:
        super().__init__()
        self.adopted = dict(adopted)
        self.run = "RUN"

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        raise SelfcalError(self.sentence())

    def sentence(self) -> str:
        name = self.adopted.get("module")
        words = f", made by {name}" if name else ""
        given = str(name).rpartition(":")[2] if name else "your_module"
        return (
            f"the score model of {self.run} is a module of your own{words}, whose code is not in the run; "
            f"open it in Python: selfcal.load({self.run!r}, module={given})"
        )
