"""Two processes under torchrun (gloo) sample, evaluate and plan: the same bits as one, written once, said once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import selfcal
from command_line import typed

QUICK = ("--steps", "3", "--seed", "4")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    small = {
        f"{role}.{name}": value for role in ("score", "classifier") for name, value in (("width", 32), ("batch", 16))
    }
    small["sampling.batch"] = 200
    out = tmp_path_factory.mktemp("together") / "run"
    return selfcal.train("digits", "cg-sc-all", 0.1, out, steps=4, settings=small)


def together(*arguments):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [*launch, "-m", "selfcal.cli", *map(str, arguments)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_samples(run, tmp_path, capsys):
    """Two whole batches, one for each process; one that they share in slices; and of the next, one slice for one."""
    for count, sampler in ((450, "dpm++2m-sde"), (130, "pc")):
        arguments = ("sample", run.path, "--count", count, "--scale", "2", "--sampler", sampler, *QUICK, "--out")
        said = together(*arguments, tmp_path / f"two-{count}.npz")
        assert said.count(f"{count} samples in") == 1
        assert typed(capsys, *arguments, tmp_path / f"one-{count}.npz")[0] == 0
        one, two = (tmp_path / f"{who}-{count}.npz" for who in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
        with np.load(one) as arrays:
            assert len(arrays["x"]) == len(np.unique(arrays["x"], axis=0)) == count


def test_evaluation(run, capsys):
    arguments = ("evaluate", run.path, "--scales", "0,1,2", "--count", "100", *QUICK)
    said = together(*arguments)
    assert said.count("written to") == 1
    two = json.loads((run.path / "metrics.json").read_text())
    (run.path / "metrics.json").unlink()
    assert typed(capsys, *arguments)[0] == 0
    assert json.loads((run.path / "metrics.json").read_text()) == two


def test_the_plan_is_of_both(tmp_path):
    said = " ".join(together("train", "moons", "--out", tmp_path / "r", "--dry-run").split())
    assert "of it, each of 2 processes 128 128" in said
    assert said.count("these 2 processes together") == 1
    assert not (tmp_path / "r").exists()
