"""Two processes under torchrun (gloo): the same gradient as one, killed and continued by two or by one."""

from __future__ import annotations

import os
import shutil
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
from selfcal.core.team import ALONE, Team
from selfcal.diffusion.noise import Noise
from selfcal.methods.terms.jem import NaiveEnergy
from selfcal.training import checkpoints, memories

only_long = pytest.mark.skipif(not small.LONG, reason="starts eight times two processes; runs in `make test-faults`")
pytestmark = pytest.mark.timeout(1200)


def torchrun(*arguments, processes=2):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*launch, *map(str, arguments)], env=environment, **pipes)


def trains(out, processes=2, **more):
    return torchrun("-m", "selfcal.cli", *small.command(out, **more), processes=processes)


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


NAIVE = {"method": "cg-jem", "terms.jem_naive": True, "terms.jem_steps": 1}


class Pretended(Team):
    """One of two processes, of which the other's answers are known."""

    def __init__(self, number, others=()):
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "others", dict(others))

    rank = property(lambda self: self.number)
    world = 2

    def merged(self, found):
        return dict(sorted({**self.others, **found}.items()))


def chains(seed):
    energy = NaiveEnergy(Noise(0.1, 1.0), 1, 0.5, 0.1)
    rng = torch.Generator().manual_seed(seed)
    energy.buffer.chains = {b: torch.randn(energy.buffer.size, 2, generator=rng) for b in range(seed, seed + 3)}
    return energy


def test_each_process_gets_its_own_chains_back():
    first, second = {"jem": chains(0)}, {"jem": chains(1)}
    theirs = {f"jem/{key}": value for key, value in second["jem"].state().items()}
    saved = memories.packed(first, Pretended(0, {1: theirs}))
    assert {"jem/0", "jem/2", "process-1/jem/1", "process-1/jem/3"} <= set(saved)
    for rank, before in ((0, first), (1, second), (2, first), (3, second)):
        again = {"jem": NaiveEnergy(Noise(0.1, 1.0), 1, 0.5, 0.1)}
        memories.unpack(saved, again, Pretended(rank))
        now, then = again["jem"].state(), before["jem"].state()
        assert now.keys() == then.keys()
        assert all(torch.equal(now[key], then[key]) for key in now)
    alone = {"jem": NaiveEnergy(Noise(0.1, 1.0), 1, 0.5, 0.1)}
    memories.unpack(saved, alone, ALONE)  # one process goes on with the first one's
    assert alone["jem"].state().keys() == first["jem"].state().keys()


def test_chains_of_both_processes_are_in_the_checkpoint(tmp_path):
    """And a run that is continued by both ends with the same bits as one that was left alone."""
    short = NAIVE | {"steps": 6, "run.save_every": 3}
    whole, out = tmp_path / "whole", tmp_path / "run"
    finished(trains(whole, **short))
    names = load_file(checkpoints.path_of(whole / "checkpoints" / "classifier", 6) / "terms.safetensors")
    assert {name.split("/")[0] for name in names} == {"jem", "process-1"}
    shutil.copytree(whole, out)
    for network, kept in (("score", 6), ("classifier", 3)):  # as if it had been killed after this step
        for step in checkpoints.steps_saved(out / "checkpoints" / network):
            if step > kept:
                shutil.rmtree(checkpoints.path_of(out / "checkpoints" / network, step))
    finished(trains(out, **short))
    small.assert_same(whole, out)


@only_long
@pytest.mark.parametrize("rank", [0, 1])
def test_naive_jem_of_which_one_process_is_killed(tmp_path, rank):
    whole, out = tmp_path / "whole", tmp_path / "run"
    finished(trains(whole, **NAIVE))
    killed = trains(out, **NAIVE)
    while small.newest(out, "classifier") == 0:
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.005)
    os.kill(workers(killed)[rank], signal.SIGKILL)
    killed.communicate(timeout=300)
    finished(trains(out, **NAIVE))
    small.assert_same(whole, out)
    finished(small.start(small.command(out, **NAIVE)))  # one process: nothing is left to do, and nothing is spoiled
    small.assert_same(whole, out)


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
