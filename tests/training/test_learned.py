"""How much of its score a network has learned: in the log, in show, in evaluation; networks alone as generators."""

from __future__ import annotations

import json

import pytest
import torch

import selfcal
from selfcal import cli
from selfcal.core.settings import NetworkSettings
from selfcal.training.learned import IDLE, idle_in_words, learned


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    small = {"score.width": 32, "classifier.width": 32, "run.log_every": 10}
    return selfcal.train(
        "digits", "cg-sc-all", 0.1, tmp_path_factory.mktemp("learned") / "r", steps=200, settings=small
    )


def test_the_last_lines_are_averaged_by_network():
    lines = [{"network": "classifier", "step": s, "sc": 1.0, "sc_fraction": float(s)} for s in range(1, 31)]
    lines += [{"network": "score", "step": 1, "dsm_fraction": 0.5}, {"network": "score", "step": 2, "event": "x"}]
    assert learned(lines) == {"classifier": {"sc_fraction": 25.5}, "score": {"dsm_fraction": 0.5}}
    pooled, mlp = NetworkSettings(network="ncsnpp", head="pooled"), NetworkSettings()
    assert "97%" in idle_in_words(0.97, mlp)
    assert "head=energy" in idle_in_words(0.97, pooled)
    assert "head" not in idle_in_words(0.97, mlp), "an mlp has none"
    assert IDLE == 0.95


def test_the_log_tells_fractions_that_fall(run):
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    for network, name in (("score", "dsm_fraction"), ("classifier", "sc_fraction")):
        values = [line[name] for line in lines if line["network"] == network]
        assert all(0 < value < 2 for value in values)
        assert sum(values[-5:]) < sum(values[:5])
    assert set(run.describe()["learned"]) == {"score", "classifier"}


def test_evaluation_tells_them_by_sigma_and_tries_networks_alone(run):
    kept = []
    report = run.evaluate(scales=(1.0,), count=40, intervals=False, alone=True, keep=kept.append)
    assert [row["sigma"] for row in report["learned"]] == sorted(row["sigma"] for row in report["learned"])
    data, level = run.data, report["learned"][6]["sigma"]
    z = torch.randn(data.x_test.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        s = run.networks["score"](data.x_test + level * z, torch.full((len(z),), level))
    assert report["learned"][6]["score"] == pytest.approx(
        float((level * s + z).square().sum() / z.square().sum()), rel=1e-4
    )
    mean = sum(row["guide"] for row in report["learned"]) / len(report["learned"])
    assert report["results"][0]["sc_fraction"] == pytest.approx(mean)
    assert report["results"][0]["guide_accuracy"] == report["guide"][0]["accuracy"]
    rows = {row["guide"]: row for row in report["alone"]}
    assert list(rows) == ["unconditional", "classifier-only-unconditional", "classifier-only"]
    assert "accuracy" in rows["classifier-only"]
    assert "accuracy" not in rows["unconditional"], "it was asked for no class"
    assert [s.made["guide"] for s in kept] == ["classifier", *rows]
    kept.clear()
    run.evaluate(scales=(1.0,), count=40, intervals=False, alone=True, sampler="heun", steps=3, keep=kept.append)
    assert {(s.made["sampler"], s.made["steps"]) for s in kept} == {("heun", 3)}


def typed(*words):
    with pytest.raises(SystemExit) as end:
        cli.main(list(words))
    assert end.value.code in (0, None)


def test_show_and_evaluate_say_it_in_words(run, capsys):
    typed("evaluate", str(run.path), "--scales", "1,2", "--count", "40", "--no-intervals")
    printed = capsys.readouterr().out
    assert "fraction of a zero score's" in printed
    typed("show", str(run.path))
    assert "sc loss" in capsys.readouterr().out


def test_a_scale_at_the_edge_of_its_grid_is_said(run, capsys):
    typed("evaluate", str(run.path), "--scales", "0,0.01", "--count", "40", "--no-intervals")
    report = json.loads((run.path / "metrics.json").read_text())
    chosen = next(r["scale"] for r in report["results"] if r["chosen"])
    assert ("the largest scale" in capsys.readouterr().out) == (chosen == 0.01)
