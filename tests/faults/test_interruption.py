"""SIGTERM and Ctrl-C: finish the step, save it, say how to go on. One process per run directory."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
import time

import pytest

import small
from selfcal.core.errors import SelfcalError
from selfcal.training.signals import Interrupted, stop_requests


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    small.train(out)
    return out


def signals_itself(number, at, work):
    """Send a signal while the n-th file of a checkpoint is being opened for writing."""
    seen = 0

    def hook(event, arguments):
        nonlocal seen
        if event == "open" and ".writing/" in str(arguments[0]) and "x" in (arguments[1] or ""):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), number)

    sys.addaudithook(hook)
    with pytest.raises(Interrupted, match="which is saved"):
        work()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_write(tmp_path, whole, number):
    """The write is finished, what is written is good, and the run ends with the same bits."""
    for at in random.Random(number).sample(range(1, 50), 12 if small.LONG else 3):
        out = tmp_path / str(at)
        assert (
            small.ended(small.forked(lambda out=out, at=at: signals_itself(number, at, lambda: small.train(out)))) == 0
        )
        assert small.repeated(out) == 0
        small.train(out)
        small.assert_same(whole, out)


def test_a_signal_between_two_checkpoints_saves_the_step(tmp_path, whole):
    """It is off the schedule, and gone from the finished run."""
    out, seen = tmp_path / "run", []
    for at in (3, 7, 19):

        def hurry(at=at):
            from selfcal.training import stage as stages

            real = stages.finite_losses

            def and_signal(network, step):
                if step.number == at:
                    os.kill(os.getpid(), signal.SIGTERM)
                return real(network, step)

            stages.finite_losses = and_signal
            with pytest.raises(Interrupted, match=f"after step {at} of 30 of the score network"):
                small.train(out)

        assert small.ended(small.forked(hurry)) == 0
        seen.append(small.newest(out, "score"))
    assert seen == [3, 7, 19]
    small.train(out)
    small.assert_same(whole, out)


def test_the_typed_command_says_how_to_go_on(tmp_path, whole):
    """Exit code 130, and the printed command finishes the run."""
    out = tmp_path / "a run"
    process = small.start(small.command(out))
    while small.pulse(out) is False and process.poll() is None:
        time.sleep(0.01)
    while small.pulse(out) is True and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "which is saved; the same command continues:" in said
    printed = shlex.split(said.strip().splitlines()[-1])
    assert printed[0] == "selfcal"
    again = small.start(printed[1:])
    _, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    small.assert_same(whole, out)


def test_two_processes_at_once(tmp_path):
    out = tmp_path / "run"
    child = small.forked(lambda: small.train(out, steps=100_000))
    try:
        while small.pulse(out) in (False, True):
            time.sleep(0.01)
        before = small.pulse(out)
        with pytest.raises(SelfcalError, match="another process is training in"):
            small.train(out, steps=100_000)
        with pytest.raises(SelfcalError, match="another process is training in"):
            small.train(out)  # another length, but not now
        while small.pulse(out) == before:
            time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
    assert small.killed(child)
    done = small.newest(out, "score")

    def goes_on():
        while small.newest(out, "score") <= done:
            time.sleep(0.01)
        os.kill(watched, signal.SIGTERM)

    watched = os.getpid()
    watcher = small.forked(goes_on)
    with pytest.raises(Interrupted):  # the dead process holds no lock
        small.train(out, steps=100_000)
    assert small.ended(watcher) == 0


def test_ignored_signals_stay_ignored_and_others_are_given_back():
    before, mine = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)  # whoever set it in this process
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not stop.received
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.received
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
