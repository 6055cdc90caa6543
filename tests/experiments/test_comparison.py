"""`selfcal compare`: cells that are done are never done again, failures do not stop the rest, kills lose nothing."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

from selfcal.core.errors import SelfcalError
from selfcal.experiments.compare import Cell, Grid, ScoreModel, compare
from selfcal.experiments.compare.board import Board, in_words
from selfcal.experiments.compare.grid import apart, canonical
from selfcal.experiments.compare.page import print_comparison, write_page
from selfcal.experiments.compare.runner import Runner
from selfcal.experiments.workers import Workers
from selfcal.run import train
from selfcal.training.lock import sole_owner

BUDGET = {"steps": 5, "count": 40, "jobs": 1}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "grid"
    return compare("digits", ["cg", "cond"], ["0.02", "1.0"], 1, out, **BUDGET)


def test_every_cell_is_a_run_with_an_outcome(grid):
    assert len(grid.cells) == 4
    for cell in grid.cells:
        outcome = json.loads(cell.outcome(grid.out).read_text())
        assert outcome["state"] == "done"
        assert [r["chosen"] for r in outcome["results"]] == [True]
        assert (cell.run(grid.out) / "config.json").exists()
        with np.load(cell.pictures(grid.out)) as pictures:
            assert pictures["images"].shape == (10, 10, 1, 8, 8)
    guided = json.loads(Cell("cg", "0.02", 0).outcome(grid.out).read_text())
    assert [row["scale"] for row in guided["selection"]] == [1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    best = min(guided["selection"], key=lambda row: row["intra_fid"])
    assert guided["results"][0]["scale"] == best["scale"]
    assert guided["results"][0]["intra_fid"] != best["intra_fid"], "the reported samples are not those λ was chosen on"


def test_the_score_model_is_trained_once_for_a_seed(grid):
    weights = {
        file.read_bytes()
        for place in ("cells/cg/*/seed-0", "scores/seed-0")
        for file in grid.out.glob(f"{place}/checkpoints/score/step-*/ema.safetensors")
    }
    assert len(weights) == 1
    log = [json.loads(line) for file in grid.out.glob("cells/*/*/*/log.jsonl") for line in file.open()]
    assert {line["network"] for line in log} == {"classifier", "conditional"}


def test_only_what_is_missing_is_done_again(grid):
    missing = Cell("cond", "1.0", 0)
    before = {cell: cell.outcome(grid.out).stat().st_mtime_ns for cell in grid.cells}
    numbers = json.loads(missing.outcome(grid.out).read_text())["results"]
    missing.outcome(grid.out).unlink()
    again = compare("digits", ["cg", "cond"], ["0.02", "1.0"], 1, grid.out, **BUDGET)
    changed = [cell for cell in again.cells if cell.outcome(grid.out).stat().st_mtime_ns != before[cell]]
    assert changed == [missing]
    assert json.loads(missing.outcome(grid.out).read_text())["results"] == numbers
    assert len(again.invocations) == 2


def test_another_protocol_is_refused_by_name(grid):
    with pytest.raises(SelfcalError, match=r"differs in settings\.classifier\.steps.*Choose another --out"):
        compare("digits", ["cg"], ["0.02"], 1, grid.out, steps=6, count=40)
    with pytest.raises(SelfcalError, match="differs in samples"):
        compare("digits", ["cg"], ["0.02"], 1, grid.out, steps=5, count=60)


def test_bad_input_is_told_before_anything_is_written(tmp_path):
    out = tmp_path / "new"
    with pytest.raises(SelfcalError, match="unknown method"):
        compare("digits", ["cg", "gg"], ["0.02"], 1, out)
    with pytest.raises(SelfcalError, match="--count 10: at least 2 images"):
        compare("digits", ["cg"], ["0.02"], 1, out, count=10)
    for wrong in ({"seeds": 0}, {"jobs": 0}, {"jobs": -1}):
        with pytest.raises(SelfcalError, match=f"--{next(iter(wrong))} .*: at least 1 is needed"):
            compare("digits", ["cg"], ["0.02"], **({"seeds": 1} | wrong), out=out)
    with pytest.raises(SelfcalError, match="nothing to compare"):
        compare("digits", [], ["0.02"], 1, out)
    with pytest.raises(SelfcalError, match=r"0\.0001"):
        compare("digits", ["cg"], ["0.02", "0.0001"], 1, out)
    assert not out.exists()
    (tmp_path / "file.txt").write_text("mine")
    with pytest.raises(SelfcalError, match="not a comparison"):
        compare("digits", ["cg"], ["0.02"], 1, tmp_path)


def test_one_choice_of_labels_has_one_name():
    assert [canonical(y) for y in (".02", "0.020", 0.02, "1", "1.0")] == ["0.02", "0.02", "0.02", "1.0", "1.0"]
    assert [canonical(y) for y in ("4/class", "a/labels.csv")] == ["4/class", "a/labels.csv"]


def test_two_label_files_of_one_name_are_refused():
    with pytest.raises(SelfcalError, match="same folder"):
        apart([Cell("cg", "a/labels.csv", 0), Cell("cg", "b/labels.csv", 0)])


def test_a_second_comparison_in_the_folder_waits(grid):
    with sole_owner(grid.out), pytest.raises(SelfcalError, match="another process"):
        compare("digits", ["cg"], ["0.02"], 1, grid.out, **BUDGET)


def test_a_failed_cell_is_recorded_and_the_rest_goes_on(grid, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(grid.out, out)  # other tests count the cells of the grid
    in_the_way = Cell("cfg-labeled", "0.02", 0).run(out)
    in_the_way.mkdir(parents=True)
    (in_the_way / "notes.txt").write_text("not a run")
    command = f"compare digits --methods cfg-labeled,cfg-all --labels 0.02 --seeds 1 --steps 5 --count 40 --out {out}"
    done = selfcal(command)
    assert done.returncode == 3, done.stderr
    assert "failed: cfg-labeled" in done.stdout
    assert Cell("cfg-all", "0.02", 0).state(out) == "done"
    outcome = json.loads(Cell("cfg-labeled", "0.02", 0).outcome(out).read_text())
    assert "not a run" in outcome["error"]
    assert "not a run" in (out / "report.html").read_text()
    (in_the_way / "notes.txt").unlink()
    done = selfcal(command)
    assert done.returncode == 0, done.stderr
    assert Cell("cfg-labeled", "0.02", 0).state(out) == "done"


def test_seeds_may_share_one_score_model(grid):
    protocol = dataclasses.replace(grid.protocol, score_seed=7)
    cells = [Cell("cg", "0.02", seed) for seed in (0, 1)]
    assert [cell.waits_for(protocol) for cell in cells] == [ScoreModel(7)] * 2
    assert [cell.waits_for(grid.protocol) for cell in cells] == [ScoreModel(0), ScoreModel(1)]


def test_a_score_model_that_is_there_serves_all_cells(grid, tmp_path):
    """Taken over to the bit, none is trained, and the same command with the run moved elsewhere goes on."""
    donor, out = tmp_path / "donor", tmp_path / "grid"
    train("digits", "cg", 0.02, donor, steps=7, until="score")
    budget = {"count": 40, "jobs": 1, "settings": ["classifier.steps=5"]}
    made = compare("digits", ["cg"], ["0.02"], 2, out, score=donor, **budget)
    assert made.protocol.resolved.score.steps == 7
    assert not (out / "scores").exists()
    theirs = (donor / "checkpoints/score/step-00000007/ema.safetensors").read_bytes()
    for cell in made.cells:
        assert cell.state(out) == "done"
        assert (cell.run(out) / "checkpoints/score/step-00000007/ema.safetensors").read_bytes() == theirs
    assert "taken over from another run" in write_page(out).read_text()
    moved = donor.rename(tmp_path / "elsewhere")
    assert compare("digits", ["cg"], ["0.02"], 3, out, score=moved, **budget).cells[2].state(out) == "done"
    with pytest.raises(SelfcalError, match="score_sha256"):
        compare("digits", ["cg"], ["0.02"], 3, out, settings=["classifier.steps=5", "score.steps=7"], count=40)


def test_a_score_model_that_does_not_fit_is_refused_before_anything_is_written(grid, tmp_path):
    out, score = tmp_path / "new", Cell("cg", "0.02", 0).run(grid.out)
    words = {"count": 40, "jobs": 1}
    for options, reason in (
        ({"score": score, "score_seed": 1}, "one takes a score model that is there"),
        ({"score": tmp_path}, "is not a run"),
        ({"score": score, "settings": ["score.width=32"]}, "another score.width"),
    ):
        with pytest.raises(SelfcalError, match=reason):
            compare("digits", ["cg"], ["0.02"], 1, out, **words, **options)
    with pytest.raises(SelfcalError, match="none of these methods uses a score model"):
        compare("digits", ["cond"], ["0.02"], 1, out, score=score, **words)
    assert not out.exists()


def test_cells_wait_for_their_seeds_score_model_and_fail_with_it(grid, tmp_path):
    """Without a score model no cell that needs one is begun; the others are not held up."""
    copy = Grid.open(tmp_path / "new", grid.protocol, [Cell("cg", "0.02", 5), Cell("cond", "0.02", 5)])
    runner = Runner(copy, Workers(2), Board(copy, show=False))
    guided, conditional = copy.cells
    assert [task.name for task in runner.in_order(copy.cells)].count("score model · seed 5") == 1
    assert runner.is_ready(conditional)
    assert runner.is_ready(ScoreModel(5))
    assert not runner.is_ready(guided)
    runner.waiting, runner.errors[ScoreModel(5)] = [guided], "no space left"
    assert runner.is_ready(guided)
    runner.begin(guided)
    outcome = json.loads(guided.outcome(copy.out).read_text())
    assert outcome["error"] == "the score model of seed 5 failed: no space left"
    assert (runner.board.states[guided], runner.running, runner.waiting) == ("failed", {}, [])


def test_a_killed_comparison_leaves_no_worker_behind_and_goes_on(tmp_path):
    out = tmp_path / "grid"
    words = (
        f"compare moons --methods cg,cond --labels 0.02 --seeds 1 --steps 60 --count 60 --jobs 2 --out {out}".split()
    )
    parent = subprocess.Popen([sys.executable, "-m", "selfcal.cli", *words], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not list(out.glob("cells/*/*/*/log.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = children_of(parent.pid)
    assert children, "workers were busy when the parent was killed"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while any(alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(pid) for pid in children)
    done = selfcal(" ".join(words))
    assert done.returncode == 0, done.stderr
    assert {cell.state(out) for cell in Grid.read(out).cells} == {"done"}
    assert "<svg" in (out / "report.html").read_text(), "points are drawn"


def test_the_page_is_made_again_from_results_alone_and_opens_offline(grid, tmp_path):
    light = tmp_path / "light"
    for file in [grid.out / "compare.json", grid.out / "data.npz", *grid.out.glob("cells/*/*/seed-*.*")]:
        target = light / file.relative_to(grid.out)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    page = write_page(light).read_text()
    assert page == write_page(grid.out).read_text()
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert links
    assert all(link.startswith(("data:", "#")) for link in links)
    assert {f.name for f in light.iterdir()} >= {"table.md", "table.csv", "table.tex", "claims.md", "over-labels.svg"}


def test_the_report_command_names_what_is_missing(tmp_path):
    done = selfcal(f"report {tmp_path}")
    assert done.returncode == 2
    assert "holds no results" in done.stderr


def test_time_left_goes_by_the_pace_of_what_is_done_and_counts_what_is_under_way(grid):
    cell = Cell("cg", "0.02", 0)
    runner = Runner(grid, Workers(2), Board(grid, show=False))
    assert runner.seconds_left() is None
    runner.work_done, runner.seconds_of_work = runner.units(cell), 100.0
    runner.waiting = [cell]
    runner.running = {cell: time.monotonic() - 40}
    assert runner.seconds_left() == pytest.approx((100 + 60) / 2, abs=1)
    runner.waiting, runner.running = [], {}
    runner.board.finished(cell, runner.seconds_left())
    assert runner.board.summary() == "4 of 4 cells done", "nothing is left, and no time is named"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_table_of_a_narrow_terminal_has_fewer_columns_and_whole_words(grid, width):
    console = Console(width=width, file=io.StringIO())
    print_comparison(console, grid.out)
    text = console.file.getvalue()
    assert "…" not in text
    assert "intra-FID" in text
    assert ("ECE" in text) == (width > 40)


def test_the_page_tells_who_chose_the_largest_scale_and_what_was_lost(grid, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(grid.out, out)
    file = Cell("cond", "1.0", 0).outcome(out)
    lost = {"results": [], "diverged": {"step": 3, "network": "conditional", "losses": {}}}
    file.write_text(json.dumps(json.loads(file.read_text()) | lost))
    file = Cell("cg", "0.02", 0).outcome(out)
    outcome = json.loads(file.read_text())
    outcome["results"][0]["scale"] = 6.0
    file.write_text(json.dumps(outcome))
    write_page(out)
    for name in ("table.md", "report.html"):
        text = (out / name).read_text()
        assert "cond, 1.0, seed 0 diverged at step 3 of the conditional network" in text
        assert re.search(r"2 %: 30 labels: the largest λ or w was chosen by cg\b", text)
    assert Cell("cond", "1.0", 0).state(out) == "diverged"


def test_the_board_counts(grid, capsys):
    board = Board(grid, show=False)
    assert board.summary().endswith("cells done")
    picture = board.picture([Cell("cg", "0.02", 0), ScoreModel(0)])
    assert "cg · 0.02 · seed 0 · classifier step 5" in str(picture.renderables[1])
    assert "score model · seed 0 · score step 5" in str(picture.renderables[2])
    assert in_words(30) == "30 s"
    assert in_words(1200) == "20 min"


def selfcal(words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "selfcal.cli", *words.split()],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")
