"""Processes that share a piece of work: who does what, and how everybody gets to know the outcome.

Every process goes through the same program and asks for the same things in the same order. What is shared is cut in a
way that depends on the work alone, never on how many processes there are: so the outcome is the same, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from selfcal.core.errors import SelfcalError

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """This process among all that torchrun started; without an accelerator it is alone."""

    accelerator: Any = None  # accelerate.Accelerator

    @property
    def rank(self) -> int:
        return 0 if self.accelerator is None else int(self.accelerator.process_index)

    @property
    def world(self) -> int:
        return 1 if self.accelerator is None else int(self.accelerator.num_processes)

    @property
    def is_main(self) -> bool:
        """The one that writes files, and speaks."""
        return self.rank == 0

    def mine(self, weights: Sequence[float]) -> set[int]:
        """Which of several jobs of these weights this process does: the heaviest first, each to whom has least."""
        loads, own = [0.0] * self.world, set()
        for job in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
            least = min(range(self.world), key=lambda r: (loads[r], r))
            loads[least] += weights[job]
            if least == self.rank:
                own.add(job)
        return own

    def each(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """The outcome of every job, done by one process each."""
        own = self.mine([1.0] * len(jobs))
        found = self.merged({i: job() for i, job in enumerate(jobs) if i in own})
        return [found[i] for i in range(len(jobs))]

    def merged(self, found: Mapping[int, T]) -> dict[int, T]:
        """What all processes found, in all of them."""
        if self.world == 1:
            return dict(found)
        from accelerate.utils import gather_object

        with partners():
            parts: list[dict[int, T]] = gather_object([dict(found)])
        return {job: value for part in parts for job, value in part.items()}

    def from_main(self, make: Callable[[], T]) -> T:
        """What the main process makes, in all of them: for work that cannot be shared, and caches."""
        if self.world == 1:
            return make()
        from accelerate.utils import broadcast_object_list

        with partners():
            made: list[Any] = broadcast_object_list([make() if self.is_main else None])
        result: T = made[0]
        return result

    def main_first(self, make: Callable[[], T]) -> T:
        """Made by all, but by the main process first: the others find what it left in the cache."""
        if not self.is_main:
            self.wait()
        made = make()
        if self.is_main:
            self.wait()
        return made

    def wait(self) -> None:
        if self.world > 1:
            with partners():
                self.accelerator.wait_for_everyone()

    def gathered(self, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """The rows of every process, by rank, in all of them; sizes: how many each has."""
        if self.world == 1:
            return [rows]
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        with partners():
            whole = self.accelerator.gather(padded.to(self.accelerator.device)).cpu()
        return [part[:size] for part, size in zip(whole.split(max(sizes)), sizes, strict=True)]


ALONE = Team()


@contextmanager
def partners() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # the backends have no error type of their own for it
        raise SelfcalError(
            f"another process of this run is gone ({str(error).splitlines()[0][:120]}); "
            "give the same command again; a training continues from its last checkpoint"
        ) from None
