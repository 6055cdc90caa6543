"""Processes side by side, one task at a time each: networks this small gain nothing from more threads."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import torch

from selfcal.core import progress
from selfcal.core.errors import SelfcalError

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Needs:
    """What a task takes of the machine it runs on; half a GPU is shared by two."""

    cpus: float = 1.0
    gpus: float = 0.0

    @classmethod
    def read(cls, text: str) -> Needs:
        """ "cpus=4,gpus=0.5"."""
        values = {}
        for part in filter(None, text.split(",")):
            key, _, value = (word.strip() for word in part.partition("="))
            try:
                values[key] = float(value)
                if key not in ("cpus", "gpus") or not 0 <= values[key] < 1e6 or not (values[key] or key == "gpus"):
                    raise ValueError
            except ValueError:
                raise SelfcalError(f"--needs {part!r} is not of the form cpus=4 or gpus=0.5") from None
        return cls(**values)

    @property
    def resources(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus}

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU(s)" + (f" and {self.gpus:g} GPU(s)" if self.gpus else "")


class Hands(Protocol[Task]):
    """Who does the tasks of a study: processes of this machine (`Workers`), or of a cluster (`RayWorkers`).

    Entered as a block, at whose end they are stopped at once.
    """

    jobs: int  # tasks at a time

    def __enter__(self) -> Hands[Task]: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def has_room(self) -> bool: ...

    def start(self, task: Task, function: Callable[..., Any], *arguments: Any) -> None: ...

    def ended(self, timeout: float | None = None) -> Iterator[tuple[Task, Future[Any]]]: ...


class Workers(Generic[Task]):
    """`with Workers(2) as workers: workers.start(task, function, *arguments)`; leaving the block stops them at once.

    A worker that dies is replaced by the next task's, and its own task's future holds the error.
    """

    def __init__(self, jobs: int, threads: int = 1) -> None:
        self.jobs, self.threads = jobs, threads
        self.free = [self._new() for _ in range(jobs)]  # a process begins with its first task
        self.busy: dict[Future[Any], tuple[ProcessPoolExecutor, Task]] = {}

    def __enter__(self) -> Workers[Task]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with signals_wait():  # whoever asks twice must not leave half of them running
            for process in [*self.free, *(process for process, _ in self.busy.values())]:
                _stop(process)

    @property
    def has_room(self) -> bool:
        return bool(self.free)

    def start(self, task: Task, function: Callable[..., Any], *arguments: Any) -> None:
        """In a free process; there must be one."""
        with signals_wait():
            process = self.free.pop()
            try:
                future = process.submit(function, *arguments)
            except BrokenProcessPool:
                process = self._new()
                future = process.submit(function, *arguments)
            self.busy[future] = process, task

    def ended(self, timeout: float | None = None) -> Iterator[tuple[Task, Future[Any]]]:
        """Tasks that are done, as soon as there is one; none if the time is over first."""
        for future in wait(self.busy, timeout, FIRST_COMPLETED)[0]:
            process, task = self.busy.pop(future)
            self.free.append(process)
            yield task, future

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin, initargs=(self.threads,))


def side_by_side(function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Result]]:
    """Each task with its result, as they come in, from `jobs` processes; with one job, from this one.

    One thread each, so that the numbers do not depend on the number of cores.
    """
    if jobs == 1 or len(tasks) <= 1:
        with one_thread():
            yield from ((task, function(task)) for task in tasks)
        return
    waiting = deque(tasks)
    with Workers[Task](min(jobs, len(tasks))) as workers:
        while waiting or workers.busy:
            while waiting and workers.has_room:
                workers.start(waiting[0], function, waiting.popleft())
            for task, future in workers.ended():
                yield task, future.result()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Ctrl-C and SIGTERM are heard when this is over. Processes that begin meanwhile never hear of them: it is for
    their parent to stop them, which a terminal and a scheduler tell at the same time."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread meanwhile, in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _begin(threads: int) -> None:
    """How a worker begins: few threads, plain lines, and it never outlives the process that started it."""
    torch.set_num_threads(threads)
    progress.lines_only()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which stops its workers
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A killed parent cannot stop its workers, and two writers in one folder would spoil it."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _stop(pool: ProcessPoolExecutor) -> None:
    """At once, whatever it is doing."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)
