"""Several processes that train one run: waiting for each other, and noticing when one is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import Accelerator
from torch import Tensor

from selfcal.core.errors import SelfcalError


def accelerator() -> Accelerator:
    """Knows of the other processes on a CPU, too: unasked, Accelerate would there take each for the only one."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return Accelerator(cpu=several and not torch.cuda.is_available())


def wait_for_everyone(accelerator: Accelerator) -> None:
    with _partners():
        accelerator.wait_for_everyone()


def reduced(accelerator: Accelerator, values: Tensor, how: str) -> Tensor:
    """The sum or mean over all processes, in each of them."""
    with _partners():
        result: Tensor = accelerator.reduce(values, reduction=how)
    return result


@contextmanager
def _partners() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # the backends have no error type of their own for it
        raise SelfcalError(
            f"another process of this run is gone ({str(error).splitlines()[0][:120]}); "
            "the same command continues from the last checkpoint"
        ) from None
