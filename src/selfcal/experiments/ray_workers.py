"""The same workers on a Ray cluster: every task goes to a node that has what it needs, over a folder they all see.

A node that dies loses nothing but the last interval of its tasks: they begin again elsewhere, and training goes on
from its last checkpoint.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic

from selfcal.core import progress
from selfcal.core.errors import SelfcalError
from selfcal.core.version import __version__
from selfcal.experiments.workers import Needs, Task

SECONDS_TO_ANSWER = 5.0  # for a cluster's head
TRIES = 5  # of a task whose node or process died
PATIENCE = 120.0  # seconds for a file server to notice that whoever held a folder is gone
PASSED_ON = ("SELFCAL_DATA",)  # where the cluster's own environment says nothing


@dataclass(frozen=True)
class Place:
    """Where a task finds itself: what every node must agree on."""

    shared: Path  # a file that all nodes must see
    folder: str  # that paths are relative to
    environment: Mapping[str, str]
    threads: int
    version: str = __version__

    def enter(self) -> None:
        """In the process of a task, whichever node it is on."""
        import torch

        from selfcal.training import lock

        node = socket.gethostname()
        if self.version != __version__:
            raise SelfcalError(f"{node} has selfcal {__version__}, and {self.version} was asked for; install that")
        if not self.shared.exists():
            raise SelfcalError(f"{node} does not see {self.shared}; --out must be in a folder that all nodes share")
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)
        torch.set_num_threads(self.threads)
        progress.lines_only()
        lock.patience = PATIENCE


@dataclass(frozen=True)
class Job(Generic[Task]):
    """A task, what is called for it, and how often it has begun."""

    task: Task
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    begun: int = 1


class RayWorkers(Generic[Task]):
    """`with RayWorkers(address, needs, shared) as workers:` as `Workers`; its processes are the cluster's.

    address: of a running cluster, "auto" for the one here. A cluster that is already connected to is used as it is.
    """

    def __init__(self, address: str, needs: Needs, shared: Path, most: int | None = None) -> None:
        self.ray, self.needs, self.most = _connected(address), needs, most
        folder, environment = os.getcwd(), {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self.place = Place(shared.resolve(), folder, environment, max(1, int(needs.cpus)))
        self.busy: dict[Any, Job[Task]] = {}
        if not self.slots:
            has = self.ray.cluster_resources()
            raise SelfcalError(
                f"a cell needs {needs}, and the cluster has {has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs; "
                "change --needs, or wait for more nodes"
            )
        self.jobs = self.slots

    def __enter__(self) -> RayWorkers[Task]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reference in self.busy:
            self.ray.cancel(reference, force=True)

    @property
    def slots(self) -> int:
        """How many tasks the nodes of this moment can take at a time."""
        free = []
        for node in self.ray.nodes():
            has = node["Resources"] if node["Alive"] else {}
            each = [has.get(name, 0) // needed for name, needed in self.needs.resources.items() if needed]
            free.append(int(min(each)))
        return sum(free) if self.most is None else min(sum(free), self.most)

    @property
    def has_room(self) -> bool:
        return len(self.busy) < self.slots

    def start(self, task: Task, function: Callable[..., Any], *arguments: Any) -> None:
        self._submit(Job(task, function, arguments))

    def ended(self, timeout: float | None = None) -> Iterator[tuple[Task, Future[Any]]]:
        """Tasks that are done, as soon as there is one; those whose node died begin again."""
        done, _ = self.ray.wait(list(self.busy), timeout=timeout) if self.busy else ([], [])
        for reference in done:
            job, future = self.busy.pop(reference), Future[Any]()
            error = self._error(reference)
            if error is not None and not isinstance(error, self.ray.exceptions.RayTaskError) and job.begun < TRIES:
                progress.say(f"{getattr(job.task, 'name', job.task)}: its node or process died; it goes on elsewhere")
                self._submit(replace(job, begun=job.begun + 1))
                continue
            if error is None:
                future.set_result(self.ray.get(reference))
            else:
                future.set_exception(getattr(error, "cause", None) or error)
            yield job.task, future

    def _submit(self, job: Job[Task]) -> None:
        remote = self.ray.remote(_work).options(num_cpus=self.needs.cpus, num_gpus=self.needs.gpus, max_retries=0)
        self.busy[remote.remote(self.place, job.function, job.arguments)] = job

    def _error(self, reference: Any) -> Exception | None:
        try:
            self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return error if isinstance(error, Exception) else None
        return None


def _work(place: Place, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    place.enter()
    return function(*arguments)


def _connected(address: str) -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise SelfcalError("--on ray needs Ray: pip install 'selfcal[ray]'") from None
    if not ray.is_initialized():
        try:
            _knock(address)
            with _own_signals():
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            where = "here" if address == "auto" else f"at {address}"
            raise SelfcalError(
                f"no Ray cluster answers {where} ({' '.join(str(error).split())[:200]}); start one with "
                "`ray start --head`, or name it: --on ray:HOST:6379"
            ) from None
    return ray


def _knock(address: str) -> None:
    """Is anybody at HOST:PORT? Ray itself would go on asking for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_ANSWER).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself, and prints its stack; here it means what it means in every other command."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                signal.signal(number, handler)
