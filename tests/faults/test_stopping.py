"""Ctrl-C at a terminal, which every process hears: the whole study stops within seconds, and says what is true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import small
from selfcal.cli import commands

pytestmark = pytest.mark.timeout(300)
only_long = pytest.mark.skipif(not small.LONG, reason="starts processes of its own; runs in `make test-faults`")
PROMPT = 20.0  # seconds, on a machine that is busy with other tests


def children_of(group):
    """Processes of a group that are still alive."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "stat").read_text().rsplit(")", 1)[1].split() if entry.name.isdigit() else []
            found += [int(entry.name)] if words and int(words[2]) == group and words[0] != "Z" else []
        except (OSError, ValueError):
            continue
    return found


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=only_long)])
def test_a_demo_stops_with_its_workers(tmp_path, times):
    """Once while they work; twice while it still trains alone: the second does not even wait for the step's save."""
    out, patience = tmp_path / "demo", time.monotonic() + 120
    steps, ready = ("2", "cg-sc-all/config.json") if times == 1 else ("100000", "cg/log.jsonl")
    process = small.start(["demo", "--steps", steps, "--out", str(out)], start_new_session=True)
    ready = out / "runs" / ready
    while not ready.exists() and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.02)
    began = time.monotonic()
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    _, said = process.communicate(timeout=120)
    assert time.monotonic() - began < PROMPT, said
    assert process.returncode == 130, said
    assert "the same command continues" in said
    assert "Traceback" not in said
    patience = time.monotonic() + 5  # the tracker of shared resources ends by itself, a moment after all others
    while children_of(process.pid) and time.monotonic() < patience:
        time.sleep(0.05)
    assert children_of(process.pid) == []


def test_the_first_moment(tmp_path):
    """While modules are being imported, of which some take an interruption for another error: the list of imports
    shows how far it is."""
    for more in (1, 100, 300, 400, 900, 1500):
        words = [sys.executable, "-X", "importtime", "-m", "selfcal.cli", "evaluate", str(tmp_path)]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        seen = ""
        while "selfcal.cli" not in seen:
            seen = process.stderr.readline()
        for _ in range(more):
            process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said[-2000:]
        assert "interrupted" in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("command", "promise"),
    [
        ("train", "the same command continues:\n  selfcal train x"),
        ("evaluate", "no file is half-written, and the same command begins anew, with what is in the cache"),
        ("sample", "interrupted; no file is half-written"),
        ("export", "interrupted; no file is half-written"),
    ],
)
def test_words_before_a_command_has_any_of_its_own(command, promise):
    """What sample and export wrote is not written over, so that the same words may be refused."""
    assert commands.stopped(KeyboardInterrupt(), [command, "x"]).endswith(promise)
    assert commands.stopped(KeyboardInterrupt("x.npz was not written"), ["sample", "x"]) == "x.npz was not written"


@only_long
@pytest.mark.parametrize(
    ("command", "promise"),
    [
        (["sample", "RUN", "--count", "100000", "--out", "OUT/x.npz"], "OUT/x.npz was not written"),
        (["evaluate", "RUN", "--count", "100000"], "the same command begins anew"),
    ],
    ids=["sample", "evaluate"],
)
def test_commands_that_do_not_continue_do_not_say_so(tmp_path, run, command, promise):
    words = [w.replace("RUN", str(run)).replace("OUT", str(tmp_path)) for w in command]
    process = small.start(words)
    began = time.monotonic()
    while time.monotonic() - began < 60 and process.poll() is None:
        if any(p.name.endswith(".writing") for p in tmp_path.iterdir()) or (
            command[0] == "evaluate" and time.monotonic() - began > 8
        ):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert promise.replace("OUT", str(tmp_path)) in said
    assert "continues" not in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    small.train(out, steps=3, **{"run.save_every": 3})
    return out
