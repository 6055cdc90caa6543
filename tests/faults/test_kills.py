"""SIGKILL at any instant: no run is lost, no bit differs at the end, at most one interval is repeated."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pytest

import small
from selfcal.training import checkpoints
from small import LONG, SAVE_EVERY

FORKED_KILLS = 80 if LONG else 10
TYPED_KILLS = 30 if LONG else 1

pytestmark = pytest.mark.timeout(3600 if LONG else 300)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody interrupts, and how long one takes once everything is imported."""
    out = tmp_path_factory.mktemp("whole") / "run"
    small.train(out)
    began = time.monotonic()
    assert small.ended(small.forked(lambda: small.train(out.with_name("again")))) == 0
    small.assert_same(out, out.with_name("again"))
    return out, time.monotonic() - began


def check_after_kill(out):
    assert small.repeated(out) <= SAVE_EVERY


def test_random_instants(tmp_path, whole, record_property):
    """Children of a warm process, killed after a random time; each run is killed until it has come through."""
    reference, seconds = whole
    rng, kills, runs = random.Random(0), 0, 0
    while kills < FORKED_KILLS:
        out, runs = tmp_path / f"run-{runs}", runs + 1
        for _ in range(6):
            child = small.forked(lambda out=out: small.train(out))
            time.sleep(rng.uniform(0, 0.7 * seconds))
            os.kill(child, signal.SIGKILL)
            if not small.killed(child):
                break
            kills += 1
            check_after_kill(out)
        assert small.ended(small.forked(lambda out=out: small.train(out))) == 0
        small.assert_same(reference, out)
    record_property("faults", ["train at random instants", kills, {"SIGKILL": kills}, {}])
    print(f"{kills} kills at random instants, {runs} runs: all ended with the same bits")


def dies_at(event_number, work):
    """Run work, and die right before its n-th change to the disk; the last resort of a kill at a bad instant."""
    seen = 0
    changes = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}

    def hook(event, arguments):
        nonlocal seen
        writes = event == "open" and not isinstance(arguments[0], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in changes or writes:
            seen += 1
            if seen == event_number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work()


def test_before_every_change_to_the_disk(tmp_path, whole, record_property):
    """Not by chance: between any two files that are opened, renamed or removed, in checkpoints above all."""
    reference, _ = whole
    points, number, died = 0, 1, True
    stride = 2 if LONG else 40
    while died:
        out = tmp_path / f"at-{number}"
        died = small.killed(small.forked(lambda out=out, number=number: dies_at(number, lambda: small.train(out))))
        points += died
        if died and out.exists():
            check_after_kill(out)
        assert small.ended(small.forked(lambda out=out: small.train(out))) == 0
        small.assert_same(reference, out)
        number += stride
    record_property("faults", ["train, killed in earnest", points, {"SIGKILL": points}, {}])
    print(f"{points} kills, one before each change to the disk")
    assert points >= (80 if LONG else 4)


@pytest.mark.parametrize("network", ["score", "classifier"])
def test_between_saving_the_last_step_and_tidying_up(tmp_path, whole, network):
    out = tmp_path / "run"

    def dies():
        tidies = checkpoints.thin_out

        def dies_instead(folder, *rule):
            if folder.name == network and small.newest(out, network) == small.STEPS:
                os.kill(os.getpid(), signal.SIGKILL)
            tidies(folder, *rule)

        checkpoints.thin_out = dies_instead
        small.train(out)

    assert small.killed(small.forked(dies))
    assert small.ended(small.forked(lambda: small.train(out))) == 0
    small.assert_same(whole[0], out)


def test_the_command_as_a_user_types_it(tmp_path, whole, record_property):
    """Real processes, killed from the moment they have made the run directory on."""
    reference, seconds = whole
    rng, kills, runs = random.Random(1), 0, 0
    while kills < TYPED_KILLS:
        out, runs = tmp_path / f"run-{runs}", runs + 1
        for _ in range(4):
            before = small.pulse(out)
            process = small.start(small.command(out))
            patience = time.monotonic() + 60
            while process.poll() is None and small.pulse(out) == before and time.monotonic() < patience:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.7 * seconds))
            process.kill()
            process.communicate()
            if process.returncode != -signal.SIGKILL:
                break
            kills += 1
            check_after_kill(out)
        process = small.start(small.command(out))
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        small.assert_same(reference, out)
    record_property("faults", ["train as typed", kills, {"SIGKILL": kills}, {}])
    print(f"{kills} kills of the typed command, {runs} runs: all ended with the same bits")
