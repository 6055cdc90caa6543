"""Several processes that train one run: waiting for each other, and noticing when one is gone."""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator
from torch import Tensor

from selfcal.core.team import ALONE, Team, partners


def accelerator() -> Accelerator:
    """Knows of the other processes on a CPU, too: unasked, Accelerate would there take each for the only one."""
    return Accelerator(cpu=are_several() and not torch.cuda.is_available())


def are_several() -> bool:
    """Whether torchrun, or another launcher, has started more than one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def team() -> Team:
    """All processes that were started together."""
    return Team(accelerator()) if are_several() else ALONE


def wait_for_everyone(accelerator: Accelerator) -> None:
    with partners():
        accelerator.wait_for_everyone()


def reduced(accelerator: Accelerator, values: Tensor, how: str) -> Tensor:
    """The sum or mean over all processes, in each of them."""
    with partners():
        result: Tensor = accelerator.reduce(values, reduction=how)
    return result
