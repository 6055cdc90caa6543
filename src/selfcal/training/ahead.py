"""Batches drawn ahead, for a GPU that would otherwise wait: in a thread, into memory that it can fetch from."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields

import torch

from selfcal.diffusion.noise import Noisy

Drawn = tuple[Noisy, int]
"""A batch, and the seed of what its step draws by itself."""


class Ahead:
    """The same batches as `draw`, a function of the step alone; the one after each is drawn meanwhile."""

    def __init__(self, draw: Callable[[int], Drawn], steps: int) -> None:
        self.draw, self.steps = draw, steps
        self.thread = ThreadPoolExecutor(1)
        self.next: dict[int, Future[Drawn]] = {}

    def __call__(self, step: int) -> Drawn:
        under_way = self.next.pop(step, None)
        found = self._pinned(step) if under_way is None else under_way.result()
        self.next = {step + 1: self.thread.submit(self._pinned, step + 1)} if step + 1 < self.steps else {}
        return found

    def _pinned(self, step: int) -> Drawn:
        """In page-locked memory, from which a GPU copies while it computes."""
        batch, seed = self.draw(step)
        if not torch.cuda.is_available():
            return batch, seed
        return Noisy(*(getattr(batch, f.name).pin_memory() for f in fields(batch))), seed
