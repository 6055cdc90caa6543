"""Processes side by side, one task at a time each: networks this small gain nothing from more threads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

import torch

from selfcal.core import progress


def start(threads: int = 1) -> None:
    """How a worker begins: few threads, plain lines, and it never outlives the process that started it."""
    torch.set_num_threads(threads)
    progress.lines_only()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which stops its workers
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A killed parent cannot stop its workers, and two writers in one folder would spoil it."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


class Slot:
    """One worker process; if it dies, the next task gets a new one."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, get_context("spawn"), initializer=start, initargs=(self.threads,))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        try:
            return self.pool.submit(function, *arguments)
        except BrokenProcessPool:
            self.pool = self._new()
            return self.pool.submit(function, *arguments)

    def stop(self) -> None:
        """At once, whatever it is doing."""
        for process in list((self.pool._processes or {}).values()):
            process.kill()
        self.pool.shutdown(wait=True, cancel_futures=True)
