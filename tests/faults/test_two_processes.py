"""Two processes under torchrun (gloo): the same gradient as one, killed and continued by two or by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import gradients
import small
from selfcal.training import checkpoints

only_long = pytest.mark.skipif(not small.LONG, reason="starts eight times two processes; runs in `make test-faults`")
pytestmark = pytest.mark.timeout(1200)


def torchrun(*arguments, processes=2):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*launch, *map(str, arguments)], env=environment, **pipes)


def trains(out, processes=2):
    return torchrun("-m", "selfcal.cli", *small.command(out), processes=processes)


def finished(process):
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def workers(process):
    """The processes that torchrun has started, by their rank."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == process.pid:
                words = (entry / "environ").read_bytes().split(b"\0")
                found |= {int(w[5:]): int(entry.name) for w in words if w.startswith(b"RANK=")}
        except (OSError, ValueError):
            continue
    return found


def test_the_gradient_is_that_of_one_process(tmp_path):
    gradients.main(tmp_path / "1")
    finished(torchrun(gradients.__file__, tmp_path / "2"))
    one, two = load_file(tmp_path / "1"), load_file(tmp_path / "2")
    assert one.keys() == two.keys()
    worst = max(float((one[k] - two[k]).norm() / one[k].norm().clamp(min=1e-12)) for k in one if "/loss/" in k)
    assert worst < 1e-6, "losses"
    for network in sorted({tuple(k.split("/")[:2]) for k in one}):
        mine = [k for k in one if tuple(k.split("/")[:2]) == network and "/loss/" not in k]
        a, b = (torch.cat([x[k].flatten() for k in mine]) for x in (one, two))
        difference = float((a - b).norm() / a.norm())
        print(network, f"{difference:.1e}")
        assert difference < 1e-6, network


@only_long
@pytest.mark.parametrize("rank", [0, 1])
def test_one_of_two_is_killed(tmp_path, rank):
    whole = tmp_path / "whole"
    finished(trains(whole))
    outs = {2: tmp_path / "by-two", 1: tmp_path / "by-one"}
    for processes, out in outs.items():
        killed = trains(out)
        while small.newest(out, "score") == 0:
            assert killed.poll() is None, killed.communicate()[0]
            time.sleep(0.005)
        os.kill(workers(killed)[rank], signal.SIGKILL)
        said, _ = killed.communicate(timeout=300)
        assert killed.returncode != 0, said
        assert small.repeated(out) <= small.SAVE_EVERY
        if processes == 2:
            finished(trains(out))
        else:
            process = small.start(small.command(out))
            finished(process)
    small.assert_same(whole, outs[2])
    for network in ("score", "classifier"):
        a, b = (checkpoints.load_newest(out / "checkpoints" / network) for out in (whole, outs[1]))
        assert a[0] == b[0] == small.STEPS
        for name in a[1]["ema"]:
            torch.testing.assert_close(a[1]["ema"][name], b[1]["ema"][name], rtol=1e-4, atol=1e-5)


@only_long
def test_a_signal_stops_both_after_the_same_step(tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "run"
    finished(trains(whole))
    process = trains(out)
    while small.newest(out, "score") == 0:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)
    os.kill(workers(process)[1], signal.SIGTERM)  # one of them: the other must hear of it
    said, _ = process.communicate(timeout=300)
    assert "the same command continues" in said
    assert small.repeated(out) == 0
    finished(trains(out))
    small.assert_same(whole, out)
