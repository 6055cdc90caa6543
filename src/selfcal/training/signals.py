"""SIGTERM and Ctrl-C: finish the step, save it, stop. A second Ctrl-C stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from accelerate import Accelerator

from selfcal.training.processes import reduced


class Interrupted(KeyboardInterrupt):
    """Training stopped on a signal, after its last step was saved."""


class StopRequest:
    """Whether a signal has asked to stop."""

    def __init__(self) -> None:
        self.received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt  # whoever asks twice does not want to wait
        self.received = True

    def agreed(self, accelerator: Accelerator) -> bool:
        """The same answer in every process, so that all stop after the same step."""
        if accelerator.num_processes == 1:
            return self.received
        votes = torch.tensor([float(self.received)], device=accelerator.device)
        return bool(reduced(accelerator, votes, "sum") > 0)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Signals become requests meanwhile; where somebody chose to ignore one (nohup, a worker), it stays ignored."""
    request = StopRequest()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, request)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
