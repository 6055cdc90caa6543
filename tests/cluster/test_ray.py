"""A Ray cluster of three nodes on this machine: the outcomes of the local pool, also where a node is killed on the way.

`make test-ray` runs it; Ray is an extra of its own and its wheel is larger than all other test tools together.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ray
from ray import cluster_utils

from selfcal.core.errors import SelfcalError
from selfcal.experiments.compare import compare
from selfcal.experiments.ray_workers import TRIES, RayWorkers
from selfcal.experiments.workers import Needs

pytestmark = pytest.mark.timeout(1800)

GRID = ("digits", ["cg", "cg-sc-all", "cond"], ["0.02", "1.0"], 2)  # 12 cells, and a score model for either seed
BUDGET = {"steps": 150, "count": 40, "settings": ["run.save_every=10"]}  # some seconds for each


@pytest.fixture(scope="module")
def locally(tmp_path_factory):
    return compare(*GRID, tmp_path_factory.mktemp("local") / "grid", jobs=2, **BUDGET)


@pytest.fixture
def cluster(monkeypatch):
    """Three nodes of one CPU each; the first is the head, which holds the cluster's own records."""
    monkeypatch.setenv("RAY_worker_niceness", "0")  # or whatever else the machine does comes first
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def values(grid):
    """All outcomes without what a clock wrote."""
    found = {}
    for cell in grid.cells:
        outcome = json.loads(cell.outcome(grid.out).read_text())
        outcome.pop("seconds", None)
        found[cell.name] = outcome
    return found


def hashes(grid):
    """Of every checkpoint that is left."""
    manifests = grid.out.glob("**/checkpoints/*/step-*/manifest.json")
    return {str(file.relative_to(grid.out)): file.read_text() for file in manifests}


def children_of(parent):
    """Processes that this one has started, from the system's own list."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "stat").read_text().rsplit(")", 1)[1].split() if entry.name.isdigit() else []
            found += [int(entry.name)] if words and int(words[1]) == parent else []
    return found


def test_a_cluster_gives_the_outcomes_of_the_local_pool(cluster, locally, tmp_path):
    grid = compare(*GRID, tmp_path / "grid", on=f"ray:{cluster.address}", **BUDGET)
    assert len(grid.cells) == 12
    assert values(grid) == values(locally)
    assert hashes(grid) == hashes(locally)
    assert grid.invocations[-1]["jobs"] == 3


def test_a_node_killed_on_the_way_loses_nothing(cluster, locally, tmp_path, capsys):
    out, killed = tmp_path / "grid", []

    def kill_a_node_at_work():
        """As soon as cells are under way and every node has one."""
        while not list(out.glob("cells/*/*/seed-*/log.jsonl")) or ray.available_resources().get("CPU", 0):
            time.sleep(0.05)
        node = cluster.workers[0]
        workers = children_of(node.all_processes["raylet"][0].process.pid)
        for process in workers:  # a machine that dies takes them along; by themselves they would end their cell first
            os.kill(process, signal.SIGKILL)
        cluster.remove_node(node, allow_graceful=False)
        killed.append(len(list(out.glob("cells/*/*/seed-*.json"))))

    killer = threading.Thread(target=kill_a_node_at_work)
    killer.start()
    grid = compare(*GRID, out, on=f"ray:{cluster.address}", **BUDGET)
    killer.join()
    assert killed[0] < 12, "it was on the way"
    assert "its node or process died; it goes on elsewhere" in capsys.readouterr().err
    patience = time.monotonic() + 60  # Ray itself takes a node for dead only after it has not answered for a while
    while len(alive := [node for node in ray.nodes() if node["Alive"]]) > 2 and time.monotonic() < patience:
        time.sleep(0.2)
    assert len(alive) == 2
    assert values(grid) == values(locally)
    assert hashes(grid) == hashes(locally)


def test_a_task_that_kills_its_process_is_tried_again_and_then_reported(cluster, tmp_path, capsys):
    shared = tmp_path / "shared"
    shared.touch()
    ray.init(address=cluster.address, log_to_driver=False)
    with RayWorkers(cluster.address, Needs(), shared) as workers:
        workers.start("doomed", os._exit, 9)
        (found,) = wait_for(workers)
        assert found[0] == "doomed"
        assert isinstance(found[1].exception(), ray.exceptions.WorkerCrashedError)
        assert capsys.readouterr().err.count("it goes on elsewhere") == TRIES - 1
        workers.start("wrong", int, "x")
        (found,) = wait_for(workers)
        assert isinstance(found[1].exception(), ValueError), "an error of the task itself is not tried again"
    with RayWorkers(cluster.address, Needs(), tmp_path / "elsewhere") as workers:
        workers.start("astray", int, "1")
        (found,) = wait_for(workers)
        assert "does not see" in str(found[1].exception())
    with pytest.raises(SelfcalError, match="3 CPUs and 0 GPUs"):
        RayWorkers(cluster.address, Needs(gpus=1), shared)


def wait_for(workers):
    found = []
    while not found:
        found = list(workers.ended(timeout=1.0))
    return found


def test_nobody_at_that_address_is_said_within_seconds():
    """In a process of its own: this one may be connected already."""
    words = ["compare", "digits", "--methods", "cg", "--labels", "0.02", "--steps", "2", "--out", "nowhere"]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "selfcal.cli", *words, "--on", "ray:127.0.0.1:9"], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "no Ray cluster answers at 127.0.0.1:9" in done.stderr
    assert time.monotonic() - began < 60


def test_sigterm_is_a_sentence_there_too(cluster, tmp_path):
    out = tmp_path / "grid"
    words = ["compare", "digits", "--methods", "cg", "--labels", "0.02", "--steps", "100000", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "selfcal.cli", *words, "--on", f"ray:{cluster.address}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    while not list(out.glob("scores/*/log.jsonl")) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "the same command continues" in said
    assert "SIGTERM received" not in said
