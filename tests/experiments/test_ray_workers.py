"""The workers of a cluster, against a stand-in for Ray that does each task here: what is asked of Ray, what becomes of
nodes that die, what users are told. Ray itself is met by `make test-ray` (tests/cluster)."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from command_line import typed_unwrapped
from selfcal.core import progress
from selfcal.core.errors import SelfcalError
from selfcal.experiments import ray_workers
from selfcal.experiments.compare import Cell, compare
from selfcal.experiments.ray_workers import Place, RayWorkers
from selfcal.experiments.workers import Needs
from selfcal.training import lock


class RayError(Exception):
    pass


class WorkerCrashedError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class StandIn(ModuleType):
    """Nodes, and tasks that are done when they are waited for; the first `deaths` of them die with their node."""

    def __init__(self, *nodes, deaths=0):
        super().__init__("ray")
        self.exceptions = ModuleType("ray.exceptions")
        vars(self.exceptions).update(
            RayError=RayError, RayTaskError=RayTaskError, WorkerCrashedError=WorkerCrashedError
        )
        self.table = [{"Alive": True, "Resources": node} for node in nodes]
        self.deaths, self.asked, self.tasks, self.cancelled, self.results = deaths, [], [], [], {}

    def is_initialized(self):
        return False

    def init(self, address, **_):
        if address != "auto":
            raise ConnectionError(f"no such address:\n{address}")

    def nodes(self):
        return self.table

    def cluster_resources(self):
        return {name: sum(n["Resources"].get(name, 0) for n in self.table) for name in ("CPU", "GPU")}

    def remote(self, function):
        def options(**wanted):
            self.asked.append(wanted)
            return SimpleNamespace(remote=lambda *arguments: self.submitted(function, arguments))

        return SimpleNamespace(options=options)

    def submitted(self, function, arguments):
        self.tasks.append((function, arguments))
        return len(self.tasks) - 1

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def get(self, reference):
        if reference not in self.results:
            self.results[reference] = self.outcome(*self.tasks[reference])
        if isinstance(self.results[reference], RayError):
            raise self.results[reference]
        return self.results[reference]

    def outcome(self, function, arguments):
        if self.deaths:
            self.deaths -= 1
            return WorkerCrashedError("the node is gone")
        try:
            return function(*arguments)
        except Exception as error:
            return RayTaskError(error)

    def cancel(self, reference, force):
        self.cancelled.append(reference)


@pytest.fixture
def cluster(monkeypatch):
    """A function that makes the stand-in; what a task does to its process is undone."""
    monkeypatch.setattr(lock, "patience", 0.0)
    monkeypatch.setattr(progress, "lines_only", lambda: None)
    monkeypatch.chdir(os.getcwd())

    def made(*nodes, deaths=0):
        stand_in = StandIn(*nodes, deaths=deaths)
        monkeypatch.setitem(sys.modules, "ray", stand_in)
        monkeypatch.setitem(sys.modules, "ray.exceptions", stand_in.exceptions)
        return stand_in

    return made


def add(a, b):
    return a + b


def all_ended(workers):
    found = []
    while workers.busy:
        found += workers.ended(timeout=0.1)
    return found


def test_each_task_asks_for_what_it_needs_and_no_more_are_handed_out_than_fit(cluster, tmp_path):
    ray = cluster({"CPU": 8, "GPU": 1}, {"CPU": 3, "GPU": 4}, {"CPU": 64})
    with RayWorkers("auto", Needs(2, 0.5), tmp_path) as workers:
        assert workers.jobs == 2 + 1, "two halves of the first node's GPU; the second lacks CPUs; the third has no GPU"
        for i in range(3):
            assert workers.has_room
            workers.start(i, add, i, 1)
        assert not workers.has_room
        ray.table[0]["Alive"] = False
        assert workers.slots == 1
        assert [(task, future.result()) for task, future in all_ended(workers)] == [(0, 1), (1, 2), (2, 3)]
    assert {(a["num_cpus"], a["num_gpus"]) for a in ray.asked} == {(2, 0.5)}
    assert lock.patience > 0, "a dead node's hold on a folder is waited for"


def test_a_task_whose_node_dies_begins_again_and_one_that_always_dies_is_reported(cluster, tmp_path, capsys):
    cluster({"CPU": 1}, deaths=2)
    with RayWorkers("auto", Needs(), tmp_path) as workers:
        workers.start("lucky", add, 1, 1)
        ((task, future),) = all_ended(workers)
    assert (task, future.result()) == ("lucky", 2)
    assert capsys.readouterr().err.count("lucky: its node or process died") == 2
    ray = cluster({"CPU": 1}, deaths=99)
    with RayWorkers("auto", Needs(), tmp_path) as workers:
        workers.start("doomed", add, 1, 1)
        ((_, future),) = all_ended(workers)
    assert isinstance(future.exception(), WorkerCrashedError)
    assert len(ray.asked) == ray_workers.TRIES


def test_an_error_of_the_task_itself_is_its_own_and_leaving_cancels_the_rest(cluster, tmp_path):
    ray = cluster({"CPU": 2})
    with RayWorkers("auto", Needs(), tmp_path) as workers:
        workers.start("wrong", int, "x")
        ((_, future),) = workers.ended()
        assert isinstance(future.exception(), ValueError)
        workers.start("late", add, 1, 1)
    assert len(ray.cancelled) == 1


def test_a_node_without_the_folder_or_with_another_version_says_so(cluster, tmp_path):
    with pytest.raises(SelfcalError, match=r"does not see .*nowhere; --out must be in a folder that all nodes share"):
        Place(tmp_path / "nowhere", ".", {}, 1).enter()
    with pytest.raises(SelfcalError, match=r"and 9\.9 was asked for"):
        Place(tmp_path, ".", {}, 1, version="9.9").enter()


def test_a_comparison_on_a_cluster_is_that_of_the_local_pool(cluster, tmp_path):
    budget = {"steps": 5, "count": 40}
    here = compare("digits", ["cond"], ["0.02"], 1, tmp_path / "here", jobs=1, **budget)
    cluster({"CPU": 2}, deaths=1)
    there = compare("digits", ["cond"], ["0.02"], 1, tmp_path / "there", on="ray", **budget)
    assert there.invocations[-1]["jobs"] == 2
    outcomes = [json.loads(Cell("cond", "0.02", 0).outcome(g.out).read_text()) for g in (here, there)]
    for outcome in outcomes:
        assert outcome.pop("seconds")
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on", "slurm"], "--on 'slurm' is unknown; it can be ray, or ray:ADDRESS"),
        (["--needs", "cpus=2"], "--needs is for a cluster: add --on ray"),
        (["--on", "ray", "--needs", "cores=2"], "--needs 'cores=2' is not of the form cpus=4 or gpus=0.5"),
        (["--on", "ray", "--needs", "cpus=0"], "is not of the form"),
        (["--on", "ray", "--needs", "gpus=1"], "a cell needs 1 CPU(s) and 1 GPU(s), and the cluster has 1 CPUs"),
        (["--on", "ray:far.invalid:6379"], "no Ray cluster answers at far.invalid:6379 ("),
        (
            ["--on", "ray:127.0.0.1:1"],  # where nobody listens
            "no Ray cluster answers at 127.0.0.1:1 ([Errno 111] Connection refused); start one with `ray start --head`",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence_and_writes_nothing(cluster, tmp_path, capsys, options, words):
    cluster({"CPU": 1})
    code, _, err = typed_unwrapped(capsys, "compare", "digits", "--out", tmp_path / "grid", *options)
    assert code == 2
    assert words in err
    assert not (tmp_path / "grid").exists()


def test_without_ray_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = typed_unwrapped(capsys, "compare", "digits", "--out", tmp_path / "grid", "--on", "ray")
    assert code == 2
    assert "pip install 'selfcal[ray]'" in err
