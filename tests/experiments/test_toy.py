"""The toy: truth against itself, what scaling can and cannot do, resuming, and the command as a user types it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from command_line import typed
from selfcal.core.errors import SelfcalError
from selfcal.core.settings import resolve
from selfcal.data import moons
from selfcal.diffusion.guidance import likelihood_score
from selfcal.experiments.toy import rival as toy_rival
from selfcal.experiments.toy.page import what_one_sees, write_page
from selfcal.experiments.toy.rival import Task, compete, truth_at
from selfcal.experiments.toy.table import markdown, rows, wins
from selfcal.experiments.toy.toy import Study, toy
from selfcal.metrics.gradients import (
    LOWER_IS_BETTER,
    SCALES,
    best_scale,
    gradient_errors,
    gradient_field,
    paper_grid,
    scaled_errors,
)
from selfcal.report.columns import GRADIENTS
from selfcal.training.fit import Diverged

SIGMA = 0.01
TINY = ("--set", "classifier.width=8", "--set", "classifier.batch=16", "--set", "terms.jem_steps=2")


def tiny_toy(out, *, steps=3, **others):
    small = {"classifier.width": 8, "classifier.batch": 16}
    return toy(out, Study(steps=steps, settings=small, **others), jobs=1)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Two methods, two seeds, a few steps: wrong gradients, but every file."""
    out = tmp_path_factory.mktemp("toy") / "out"
    tiny_toy(out, rivals=("cg", "cg-sc-all"), seeds=2)
    return out


def some_field(spread=1.0):
    """A guess at the truth: the exact gradients, turned and stretched at random."""
    truth, score = truth_at(SIGMA)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(3), dtype=truth.dtype)
    return 0.4 * truth + spread * noise, truth, score


def test_the_grid_is_the_papers():
    grid = paper_grid()
    assert grid.shape == (1617, 2)
    assert grid.min(0).values.tolist() == [-12.0, -8.0]
    assert grid.max(0).values.tolist() == [12.0, 8.0]
    assert len(grid.unique(dim=0)) == 1617


def test_no_gradient_at_all_has_the_error_that_the_data_was_recognised_by():
    truth, score = truth_at(SIGMA)
    zero = gradient_errors(torch.zeros_like(truth), truth, score)
    assert zero["gradient_mse"] == pytest.approx(9.89, abs=0.01)
    assert zero["cond_score_cs"] == pytest.approx(0.763, abs=0.001)
    assert zero["gradient_cs"] == 0


def test_exact_logits_have_no_error_even_where_a_class_is_certain():
    """In single precision, as a network computes; and with any offset common to the classes."""
    mixture, (truth, score) = moons.mixture(), truth_at(SIGMA)
    assert truth.norm(dim=-1).min() < 1e-16
    estimate = gradient_field(
        lambda x, s: mixture.log_joint(x, s) - x.square().sum(-1)[:, None], paper_grid(), SIGMA, 2
    )
    errors = gradient_errors(estimate, truth, score)
    assert errors["gradient_mse"] < 1e-6
    assert errors["direction_cs"] == pytest.approx(1, abs=1e-6)
    assert errors["cond_score_cs"] == pytest.approx(1, abs=1e-6)
    ceiling = gradient_errors(truth, truth, score)["gradient_cs"]
    assert errors["gradient_cs"] == pytest.approx(ceiling, abs=1e-6)
    assert 0.8 < ceiling < 0.9, "gradients shorter than 1e-8 count as vanished"


def test_the_truth_is_bayes_rule():
    truth, score = truth_at(SIGMA)
    grid = paper_grid().double()
    sigma = torch.full((len(grid),), SIGMA, dtype=torch.float64)
    for y in range(2):
        conditional = moons.mixture().conditional_score(grid, sigma, torch.full((len(grid),), y))
        torch.testing.assert_close(truth[y], conditional - score, atol=1e-9, rtol=1e-9)


def test_the_field_is_the_gradient_that_guides():
    net = torch.nn.Linear(2, 3)
    x, sigma = torch.randn(40, 2), torch.full((40,), 0.5)

    def classifier(x, sigma):
        return net(x.sin()) * 2

    field = gradient_field(classifier, x, 0.5, 3)
    for y in range(3):
        guide = likelihood_score(classifier, x, sigma, torch.full((40,), y))
        torch.testing.assert_close(field[y].float(), guide, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 0.3, 7.0])
def test_scaling_changes_no_direction(scale):
    estimate, truth, score = some_field()
    plain, scaled = (gradient_errors(k * estimate, truth, score) for k in (1.0, scale))
    assert scaled["direction_cs"] == pytest.approx(plain["direction_cs"], abs=1e-12)
    assert scaled["gradient_cs"] == pytest.approx(plain["gradient_cs"], abs=1e-3), "no gradient here is that short"
    assert scaled["gradient_mse"] != pytest.approx(plain["gradient_mse"])
    assert scaled["cond_score_cs"] != pytest.approx(plain["cond_score_cs"], abs=1e-4)


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_the_best_scale_is_never_worse_than_none(spread):
    errors = scaled_errors(*some_field(spread))
    for column, lower in LOWER_IS_BETTER.items():
        best, plain = errors[best_scale(errors, column)][column], errors[1.0][column]
        assert best <= plain if lower else best >= plain
    assert best_scale(errors, "direction_cs") == 1.0


def test_the_best_scale_for_the_squared_error_is_the_projections():
    estimate, truth, score = some_field()
    exact = float((estimate * truth).sum() / estimate.square().sum())
    found = best_scale(scaled_errors(estimate, truth, score), "gradient_mse")
    assert abs(np.log(found / exact)) <= np.log(SCALES[1] / SCALES[0])


def test_every_seed_has_points_and_labels_of_its_own():
    x, y, seen = toy_rival.draw(60, 0)
    assert x.shape == (2000, 2)
    assert (seen[:60] == y[:60]).all()
    assert (seen[60:] == -1).all()
    assert not torch.equal(x, toy_rival.draw(60, 1)[0])
    assert torch.equal(x, toy_rival.draw(200, 0)[0]), "more labels, the same points"
    alone = next(s for s in range(20) if len(toy_rival.draw(60, s)[1][:2].unique()) == 1)
    with pytest.raises(SelfcalError, match="all of one class; raise --labels"):
        toy_rival.draw(2, alone)


def test_the_truth_wins_its_own_comparison(short):
    result = json.loads((short / "seeds/0000/truth.json").read_text())
    assert result["plain"]["gradient_mse"] < 1e-6
    assert result["plain"]["direction_cs"] == pytest.approx(1, abs=1e-6)
    assert result["paths_right"] > 0.9


def test_training_moves_the_gradients_towards_the_truth(tmp_path):
    settings = resolve("moons", {"classifier.width": 32}, steps=150)
    result = compete(Task("cg", 0, 2000, settings, tmp_path))
    assert result["plain"]["direction_cs"] > 0.5
    assert result["plain"]["cond_score_cs"] > 0.77, "better than no guidance at all"


def test_a_seed_that_is_done_is_not_done_again(short, monkeypatch):
    before = {p: p.stat().st_mtime_ns for p in short.glob("seeds/*/*")}
    assert len(before) == 2 * 3 * 2
    done = []
    monkeypatch.setattr(
        "selfcal.experiments.toy.toy.compete", lambda task: done.append((task.seed, task.method)) or compete(task)
    )
    (short / "seeds/0001/cg.json").unlink()
    lost = (short / "seeds/0001/cg.npz").read_bytes()
    tiny_toy(short, rivals=("cg", "cg-sc-all"), seeds=2)
    assert done == [(1, "cg")]
    again = {p: p.stat().st_mtime_ns for p in short.glob("seeds/*/*")}
    assert {p.name for p in before if again[p] != before[p]} == {"cg.json", "cg.npz"}
    with np.load(short / "seeds/0001/cg.npz") as new:
        (short / "old.npz").write_bytes(lost)
        assert np.array_equal(new["field"], np.load(short / "old.npz")["field"]), "and comes out the same"
    (short / "old.npz").unlink()


def test_other_settings_do_not_mix(short, tmp_path):
    with pytest.raises(SelfcalError, match=r"differs in settings\.classifier\.steps"):
        tiny_toy(short, rivals=("cg",), seeds=2, steps=4)
    with pytest.raises(SelfcalError, match="differs in labels"):
        tiny_toy(short, rivals=("cg",), seeds=2, labels=61)
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SelfcalError, match="not a toy comparison"):
        tiny_toy(tmp_path, seeds=1)


def test_jem_trains_shorter_unless_told(tmp_path, monkeypatch):
    asked = []

    def look(function, tasks, jobs):
        asked.append({t.method: t.steps for t in tasks})
        raise KeyboardInterrupt

    monkeypatch.setattr("selfcal.experiments.toy.toy.side_by_side", look)
    for jem_steps in (None, 16):
        with pytest.raises(KeyboardInterrupt):
            tiny_toy(tmp_path / str(jem_steps), rivals=("cg", "cg-jem"), seeds=1, jem_steps=jem_steps, steps=16)
    assert asked == [{"truth": 0, "cg": 16, "cg-jem": 2}, {"truth": 0, "cg": 16, "cg-jem": 16}]


def test_divergence_is_a_result(tmp_path, monkeypatch):
    def diverge(task, x, pool):
        raise Diverged("classifier", 3, {"jem": float("inf")})

    monkeypatch.setattr(toy_rival, "learn", diverge)
    result = compete(Task("cg-jem", 0, 60, resolve("moons"), tmp_path))
    assert result["diverged"]["step"] == 3
    report = report_of(cg=[1.0, 2.0], cg_jem=[3.0, 4.0])
    report["results"][-1] = json.loads((tmp_path / "cg-jem.json").read_text()) | {"seed": 1}
    assert "CG-JEM diverged on 1 of 2 seeds" in markdown(report)
    assert rows(report)[3].cells["gradient_mse"][0] == 3.0
    report["results"][-2] = report["results"][-1] | {"seed": 0}
    assert "| CG-JEM" not in markdown(report)


def report_of(**values):
    """Results with the given gradient MSEs by method, other columns alike."""
    results = []
    for method, errors in values.items():
        for seed, error in enumerate(errors):
            columns = dict.fromkeys(LOWER_IS_BETTER, 0.5) | {"gradient_mse": error}
            best = {c: {"value": v, "scale": 1.0} for c, v in columns.items()}
            results.append(
                {"method": method.replace("_", "-"), "seed": seed, "steps": 5, "cpu_seconds": 1.0, "diverged": None}
                | {"plain": columns, "best": best, "one": columns | {"scale": 1.0}}
            )
    return {"labels": 60, "examples": 2000, "results": results}


def test_metrics_and_tables_agree_on_what_is_better():
    """metrics/ may not read report/columns.py, so each says it for itself."""
    assert {c.key: c.lower_is_better for c in GRADIENTS} == LOWER_IS_BETTER


def test_the_table_holds_medians_quartiles_and_paired_wins():
    report = report_of(cg=[1.0, 2.0, 3.0, 4.0, 100.0], cg_sc_all=[2.0, 1.0, 1.0, 1.0, 1.0])
    first = rows(report)[0]
    assert first.cells["gradient_mse"] == (3.0, 2.0, 4.0)
    assert wins(report, "cg-sc-all", "cg", "plain")["gradient_mse"] == (4, 5)
    assert wins(report, "cg-sc-all", "cg", "plain")["gradient_cs"] == (0, 5), "a draw is no win"
    assert "**1.00 (1.00–1.00)**" in markdown(report)


def test_the_sentences_follow_the_numbers():
    better = what_one_sees(report_of(cg=[4.0], cg_sc_all=[1.0]))
    worse = what_one_sees(report_of(cg=[1.0], cg_sc_all=[4.0]))
    assert "75% lower" in better[0]
    assert "better one on 1 of 1" in better[0]
    assert "300% higher" in worse[0]
    assert "better one on 0 of 1" in worse[0]
    assert what_one_sees(report_of(cg=[1.0])) == []


def test_the_page_is_self_contained_and_made_from_the_files_alone(short):
    page = (short / "report.html").read_text("utf-8")
    assert page.count("data:image/png;base64,") == 2
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#]+)""", page)
    assert all(link.startswith("data:") for link in links), "nothing may be fetched"
    assert 'name="viewport"' in page
    for made in ("report.html", "fields.png", "paths.png", "table.md"):
        (short / made).unlink()
    assert write_page(short).read_text("utf-8") == page


def test_the_command_with_all_rivals_on_two_processes(capsys, tmp_path):
    out = tmp_path / "toy"
    code, shown, progress = typed(capsys, "toy", "--out", out, "--seeds", 1, "--seed", 7, "--steps", 4, *TINY)
    assert code == 0
    assert "4/5" in progress or "5/5" in progress
    assert "report.html" in shown
    results = json.loads((out / "results.json").read_text())["results"]
    assert [(r["seed"], r["method"], r["steps"]) for r in results] == [
        (7, "truth", 0),
        (7, "cg", 4),
        (7, "cg-sc-all", 4),
        (7, "cg-dlsm", 4),
        (7, "cg-jem", 1),
    ]
    for method in ("CG-DLSM", "CG-JEM"):
        assert method in (out / "table.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--labels", 1), "at least 2"),
        (("--labels", 3000), "at most all"),
        (("--seeds", 0), "--seeds 0: at least 1"),
        (("--jem-steps", 0), "--jem-steps 0: at least 1"),
        (("--labels", 2, "--seeds", 40), "all of one class; raise --labels"),
        (("--methods", "cg,cond"), "cond does not guide by just one"),
        (("--methods", "cg-cs"), "unknown method"),
        (("--methods", ","), "no method is named"),
        (("--steps", 0), "steps = 0: input should be greater"),
        (("--set", "terms.nonsense=1"), "unknown setting"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(capsys, tmp_path, arguments, words):
    code, _, problem = typed(capsys, "toy", "--out", tmp_path / "toy", *arguments)
    assert code == 2
    assert words in problem
    assert not (tmp_path / "toy").exists()
