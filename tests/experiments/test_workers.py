"""Worker processes: one task at a time, few threads, stopped at once, replaced when they die."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch

from selfcal.experiments.workers import Workers, side_by_side


def about_process(task):
    return os.getpid(), torch.get_num_threads(), signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def fail_beside_a_sleeper(folder: Path):
    """The first to come waits for the other's sign of life, then fails; the other would sleep for minutes."""
    if folder.name == "sleeper":
        (folder.parent / "pid").write_text(str(os.getpid()))
        time.sleep(300)
    while not (folder.parent / "pid").exists() or not (folder.parent / "pid").read_text():
        time.sleep(0.05)
    raise ValueError("no")


def die():
    os._exit(9)


def test_one_job_works_here_on_one_thread_and_several_elsewhere():
    torch.set_num_threads(2)
    assert dict(side_by_side(about_process, "abc", 1)).keys() == {*"abc"}
    assert {pid for _, (pid, threads, _) in side_by_side(about_process, "abc", 1) if threads == 1} == {os.getpid()}
    assert torch.get_num_threads() == 2, "as before"
    results = dict(side_by_side(about_process, "abc", 2))
    assert results.keys() == {*"abc"}
    assert all(threads == 1 and deaf for _, threads, deaf in results.values()), "Ctrl-C is the parent's"
    pids = {pid for pid, _, _ in results.values()}
    assert os.getpid() not in pids
    assert len(pids) <= 2
    assert not any(alive(pid) for pid in pids)


def test_an_error_stops_the_others_at_once(tmp_path):
    began = time.monotonic()
    with pytest.raises(ValueError, match="no"):
        list(side_by_side(fail_beside_a_sleeper, [tmp_path / "failing", tmp_path / "sleeper"], 2))
    assert time.monotonic() - began < 100, "nobody waited for the sleeper"
    assert not alive(int((tmp_path / "pid").read_text()))


def test_an_interrupt_of_the_parent_stops_all_at_once(tmp_path):
    def work():
        with Workers(1) as workers:
            workers.start("asleep", fail_beside_a_sleeper, tmp_path / "sleeper")
            assert not workers.has_room
            while not (tmp_path / "pid").exists():
                assert list(workers.ended(timeout=0.1)) == []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_worker_that_dies_is_reported_and_replaced():
    with Workers(1) as workers:
        workers.start("doomed", die)
        ((task, future),) = workers.ended()
        assert task == "doomed"
        assert isinstance(future.exception(), BrokenProcessPool)
        workers.start("next", about_process, "x")
        ((task, future),) = workers.ended()
        assert task == "next"
        assert future.result()[0] != os.getpid()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
