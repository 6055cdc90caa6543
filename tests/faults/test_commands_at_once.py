"""Two commands at once: nobody reads half a file, and nobody loses what the other has written."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import pytest
from filelock import FileLock

import selfcal
import small
from selfcal.core.errors import SelfcalError
from selfcal.core.files import read_json, write_json
from selfcal.core.turns import in_turn
from selfcal.diffusion.sample_files import next_folder, write_next
from selfcal.experiments.compare.runner import compare
from selfcal.training import lock

ROUNDS = 300 if small.LONG else 40


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    out = tmp_path_factory.mktemp("points") / "run"
    small.train(out, steps=3, **{"run.save_every": 3})
    return out


def test_readers_never_see_halves(tmp_path):
    """Four writers and a reader of one JSON file, for as long as they write."""
    file = tmp_path / "metrics.json"
    write_json(file, [0] * 4000)

    def write(number):
        for i in range(ROUNDS):
            write_json(file, [number * 1000 + i] * (3000 + 10 * i))

    children = [small.forked(lambda number=number: write(number)) for number in range(4)]
    reads, left = 0, set(children)
    while left:
        assert len(set(read_json(file))) == 1
        reads += 1
        left -= {child for child in left if os.waitpid(child, os.WNOHANG)[0]}
    assert reads > 10
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


def test_two_evaluations_keep_each_others_results(points):
    """Begun before either has ended; a file read at the beginning would hold none of them."""
    begun = points / "begun"

    def evaluate(seed):
        run = selfcal.load(points)
        begun.mkdir(exist_ok=True)
        (begun / str(seed)).touch()
        while len(list(begun.iterdir())) < 3:
            time.sleep(0.005)
        run.evaluate(scales=[1.0], count=40, steps=2, intervals=False, seed=seed)

    children = [small.forked(lambda seed=seed: evaluate(seed)) for seed in (1, 2, 3)]
    assert [small.ended(child) for child in children] == [0, 0, 0]
    metrics = json.loads((points / "metrics.json").read_text())
    seeds = [row["sample_seed"] for report in (metrics, *metrics["earlier"]) for row in report["results"]]
    assert sorted(seeds) == [1, 2, 3]


def test_two_samplings_get_folders_of_their_own(tmp_path, images):
    """Both see that set-001 is free; neither writes over the other."""
    first = next_folder(images.path / "samples")
    children = [
        small.forked(lambda seed=seed: write_next(images.draw(seed=seed, **FEW), images.path)) for seed in (1, 2)
    ]
    assert [small.ended(child) for child in children] == [0, 0]
    sets = sorted((images.path / "samples").iterdir())
    assert [s.name for s in sets] == ["set-001", "set-002"]
    assert sets[0] == first
    seeds = [json.loads((s / "manifest.json").read_text())["made"]["seed"] for s in sets]
    assert sorted(seeds) == [1, 2]
    assert all(len(list(s.rglob("0000?.png"))) == 4 for s in sets)


FEW = {"count": 4, "steps": 2}


def test_the_second_of_two_outputs_of_one_name_is_refused(tmp_path, images):
    from selfcal.diffusion.sample_files import write

    target, first = tmp_path / "x.npz", images.draw(seed=1, **FEW)

    class Meanwhile:
        """A drawing while which somebody else writes the same name."""

        y, classes, made, shape = first.y, first.classes, first.made, first.shape

        def parts(self):
            write(images.draw(seed=2, **FEW), target)
            yield from first.parts()

    with pytest.raises(SelfcalError, match="File exists"):
        write(Meanwhile(), target, new=True)
    with np.load(target) as archive:
        assert json.loads(str(archive["made"]))["seed"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_a_comparison_is_one_processs_and_keeps_what_was_added_meanwhile(tmp_path, monkeypatch):
    """The second waits for the folder, and then reads the cells anew."""
    from selfcal.experiments.compare import runner

    out, added = tmp_path / "grid", []
    settings = {key: value for key, value in small.SETTINGS.items() if not key.startswith("run.")}
    monkeypatch.setattr(runner.Runner, "work_off", lambda self, cells: None)
    real = runner.sole_owner

    def after_another(folder):
        if not added:
            added.append(1)
            compare("moons", ["cg-ls"], [0.03], 1, out, steps=3, count=40, settings=settings, jobs=1)
        return real(folder)

    monkeypatch.setattr(runner, "sole_owner", after_another)
    compare("moons", ["cg"], [0.03], 1, out, steps=3, count=40, settings=settings, jobs=1)
    assert [cell[0] for cell in json.loads((out / "compare.json").read_text())["cells"]] == ["cg-ls", "cg"]
    with lock.sole_owner(out), pytest.raises(SelfcalError, match="another process"):
        compare("moons", ["cg"], [0.03], 1, out, steps=3, count=40, settings=settings, jobs=1)


def test_a_lock_that_cannot_be_made(tmp_path, monkeypatch):
    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileLock, "acquire", full)
    with pytest.raises(SelfcalError, match="No space left on device"), lock.sole_owner(tmp_path):
        pass
    with in_turn(tmp_path, "metrics.json"):  # what cannot be written is told by whoever writes
        pass
