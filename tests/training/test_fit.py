"""Training into a run directory: every method, exact continuation, and what is refused."""

from __future__ import annotations

import json
import math
import os
import shutil

import pytest
import torch
from accelerate import Accelerator

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.core.files import file_sha256
from selfcal.core.settings import resolve
from selfcal.methods.table import METHODS
from selfcal.training import checkpoints
from selfcal.training import fit as fitting
from selfcal.training.request import Request
from selfcal.training.stage import new_learner

QUICK = {"run.save_every": 10, "run.log_every": 5, "score.width": 16, "classifier.width": 16}


def trained(out, method="cg-sc-all", data="moons", steps=20, **more):
    return selfcal.train(data, method, 0.03, out, steps=steps, settings=QUICK, **more)


def weights(run):
    return {name: net.state_dict() for name, net in run.networks.items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        for key in a[name]:
            assert torch.equal(a[name][key], b[name][key]), (name, key)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_on_points(tmp_path, method):
    """Loss falls, the guide beats chance, samples are finite."""
    run = selfcal.train("moons", method, 0.05, tmp_path / "r", steps=300, settings=QUICK)
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    for stage in run.stages:
        mine = [line for line in lines if line["network"] == stage.name]
        key = "ce" if stage.role == "classifier" else "dsm"
        if stage.warm_start is None:
            assert sum(m[key] for m in mine[-5:]) < sum(m[key] for m in mine[:5])
    if "classifier" in run.networks:
        accuracy = (run.predict_proba(run.data.x_test).argmax(-1) == run.data.y_test).float().mean()
        assert accuracy > 0.7
    made = run.sample(count=11, steps=4)
    assert made.x.shape == (11, 2)
    assert torch.isfinite(made.x).all()
    assert torch.bincount(made.y).tolist() == [6, 5]


@pytest.mark.parametrize("stop", [10, 20, 30])
def test_a_killed_run_continues_to_the_same_bits(tmp_path, monkeypatch, stop):
    """Stop right after the stop-th save (score at 10, 20; classifier at 10) and give the command again."""
    whole = trained(tmp_path / "whole")
    saves, real_save = [], checkpoints.save

    def save_then_die(*arguments, **keywords):
        path = real_save(*arguments, **keywords)
        saves.append(path)
        if len(saves) * 10 == stop:
            raise KeyboardInterrupt
        return path

    monkeypatch.setattr(checkpoints, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real_save)
    torch.manual_seed(123)
    continued = trained(tmp_path / "broken")
    assert_same(weights(whole), weights(continued))
    for network in ("score", "classifier"):
        a, b = (checkpoints.load_newest(r.path / "checkpoints" / network)[1] for r in (whole, continued))
        assert_same(a, b)


def test_dropout_does_not_break_exact_continuation(tmp_path):
    settings = QUICK | {"classifier.dropout": 0.2, "score.dropout": 0.1}
    whole = selfcal.train("moons", "cg", 0.03, tmp_path / "a", steps=20, settings=settings)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for network in ("score", "classifier"):
        shutil.rmtree(tmp_path / "b" / "checkpoints" / network / "step-00000020")
    again = selfcal.train("moons", "cg", 0.03, tmp_path / "b", steps=20, settings=settings)
    assert_same(weights(whole), weights(again))


def test_what_its_own_targets_remember_goes_on_with_it(tmp_path):
    """Without its memory the continued run would balance anew, and end elsewhere."""
    settings = QUICK | {"terms.online_balanced": True, "terms.online_threshold": 0.0}

    def run(folder):
        return selfcal.train("moons", "cg-sc-online", 0.03, folder, steps=20, settings=settings)

    whole = run(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "checkpoints" / "classifier" / "step-00000020")
    memory = checkpoints.load_newest(tmp_path / "b" / "checkpoints" / "classifier")[1]["terms"]
    assert memory["online/steps"] == 10
    assert memory["online/offsets"].abs().max() > 0
    assert_same(weights(whole), weights(run(tmp_path / "b")))


def test_a_finished_run_is_left_alone(tmp_path):
    run = trained(tmp_path / "r")
    stamp = {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file()}
    trained(tmp_path / "r")
    assert stamp == {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file()}


def test_another_run_in_the_folder_is_refused_naming_the_keys(tmp_path):
    trained(tmp_path / "r")
    before = (tmp_path / "r" / "config.json").read_bytes()
    with pytest.raises(SelfcalError, match=r"differs in .*seed"):
        trained(tmp_path / "r", seed=1)
    with pytest.raises(SelfcalError, match=r"differs in method"):
        trained(tmp_path / "r", method="cg")
    with pytest.raises(SelfcalError, match=r"settings\.classifier\.steps, .*settings\.score\.steps"):
        trained(tmp_path / "r", steps=10)
    assert (tmp_path / "r" / "config.json").read_bytes() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(SelfcalError, match="not a run"):
        trained(tmp_path / "other")


def test_a_run_older_than_a_setting_goes_on(tmp_path):
    run = trained(tmp_path / "r")
    config = json.loads((run.path / "config.json").read_text())
    del config["settings"]["run"]["keep_every"]
    (run.path / "config.json").write_text(json.dumps(config))
    shutil.rmtree(run.path / "checkpoints" / "classifier")
    assert trained(tmp_path / "r").describe()["finished"]


def test_batches_that_processes_cannot_share_evenly():
    wanted = Request("moons", "cg", 0.03, settings={"classifier.batch": 130}).prepared()
    fitting.check_shares(wanted, 1)
    with pytest.raises(SelfcalError, match=r"classifier\.batch = 130 .* multiple of 4"):
        fitting.check_shares(wanted, 2)


def test_a_score_model_is_shared(tmp_path):
    donor = trained(tmp_path / "a", method="cg")
    run = trained(tmp_path / "b", score=tmp_path / "a")
    assert_same({"score": weights(donor)["score"]}, {"score": weights(run)["score"]})
    assert not [line for line in (run.path / "log.jsonl").read_text().splitlines() if '"score"' in line]
    shutil.rmtree(tmp_path / "a")
    assert len(selfcal.load(run.path).sample(count=2, steps=2)) == 2
    with pytest.raises(SelfcalError, match="a does not exist; the folder of a run"):
        trained(tmp_path / "c", score=tmp_path / "a")
    with pytest.raises(SelfcalError, match="other data"):
        trained(tmp_path / "c", data="digits", score=tmp_path / "b")
    with pytest.raises(SelfcalError, match=r"another score\.steps"):
        trained(tmp_path / "c", steps=10, score=tmp_path / "b")
    assert not (tmp_path / "c").exists()


def test_same_first_weights_whatever_the_method():
    first = [
        new_learner(
            METHODS[name].stages(resolve("moons"))[1], resolve("moons"), (2,), 2, seed, Accelerator(cpu=True)
        ).network.state_dict()
        for name, seed in (("cg", 0), ("cg-sc-all", 0), ("cg", 1))
    ]
    assert_same({"n": first[0]}, {"n": first[1]})
    assert not torch.equal(first[0]["network.enter.weight"], first[2]["network.enter.weight"])


def test_divergence_is_a_result_not_a_crash(tmp_path):
    settings = QUICK | {"score.lr": 1e9, "score.clip": 1e9}
    run = selfcal.train("moons", "cg", 0.03, tmp_path / "r", steps=50, settings=settings)
    assert run.diverged["network"] == "score"
    assert run.diverged["step"] <= 50
    assert run.evaluate()["diverged"] == run.diverged
    assert run.describe()["diverged"] == run.diverged
    with pytest.raises(SelfcalError, match="diverged: the score network at step"):
        run.sample(count=2)
    again = selfcal.train("moons", "cg", 0.03, tmp_path / "r", steps=50, settings=settings)
    assert again.diverged == run.diverged


def test_a_damaged_checkpoint_is_noticed(tmp_path):
    run = trained(tmp_path / "r")
    file = run.path / "checkpoints" / "score" / "step-00000020" / "ema.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(bytes(raw))
    with pytest.raises(SelfcalError, match=r"ema\.safetensors is damaged"):
        selfcal.load(run.path).sample(count=2, steps=2)


def test_a_run_with_a_damaged_checkpoint_is_still_shown(tmp_path):
    run = trained(tmp_path / "r")
    manifest = run.path / "checkpoints" / "score" / "step-00000020" / "manifest.json"
    manifest.write_text(manifest.read_text()[:40])
    about = selfcal.load(run.path).describe()
    assert "give the train command again" in about["damaged"]["score"]
    assert "score" not in about["weights_sha256"]
    assert not about["finished"]


def test_an_unfinished_run_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "train_stages", lambda *a: None)
    trained(tmp_path / "r")
    with pytest.raises(SelfcalError, match="no checkpoint yet"):
        selfcal.load(tmp_path / "r").sample(count=2)


def test_a_run_from_before_a_setting_existed_continues(tmp_path):
    """Its default is what the run was made with."""
    run = selfcal.train("moons", "cond", 0.05, tmp_path / "r", steps=5)
    config = json.loads((run.path / "config.json").read_text())
    for section in ("score", "classifier", "conditional"):
        del config["settings"][section]["network"]
    (run.path / "config.json").write_text(json.dumps(config))
    before, log = run.describe()["weights_sha256"], (run.path / "log.jsonl").read_bytes()
    again = selfcal.train("moons", "cond", 0.05, tmp_path / "r", steps=5)
    assert again.describe()["weights_sha256"] == before
    assert (run.path / "log.jsonl").read_bytes() == log, "it was finished, and is not trained anew"


def as_written(calls):
    """Calls of on_step as lines of log.jsonl; JSON has no word for what is not finite."""

    def plain(value):
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return [{"network": n, "step": s, **{k: plain(v) for k, v in values.items()}} for n, s, values in calls]


def lines_of(run):
    return [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]


def test_on_step_hears_every_line_of_the_log(tmp_path):
    calls = []
    run = trained(tmp_path / "r", on_step=lambda *line: calls.append(line))
    assert as_written(calls) == lines_of(run)
    assert [(network, step) for network, step, _ in calls] == [
        (network, step) for network in ("score", "classifier") for step in (1, 5, 10, 15, 20)
    ]
    calls.clear()
    trained(tmp_path / "r", on_step=lambda *line: calls.append(line))
    assert calls == [], "a finished run writes nothing, and says nothing"
    shutil.rmtree(run.path / "checkpoints" / "classifier" / "step-00000020")
    again = trained(tmp_path / "r", on_step=lambda *line: calls.append(line))
    assert as_written(calls) == lines_of(again)[-2:], "one that goes on tells what it writes again"


def test_on_step_hears_of_rollbacks_and_divergence(tmp_path):
    calls, settings = [], QUICK | {"score.lr": 1e9, "score.clip": 1e9}
    run = selfcal.train(
        "moons", "cg", 0.03, tmp_path / "r", steps=20, settings=settings, on_step=lambda *line: calls.append(line)
    )
    assert as_written(calls) == lines_of(run)
    events = [values["event"] for _, _, values in calls if "event" in values]
    assert events == ["rolled back"] * 3 + ["diverged"]


def test_a_shared_score_model_is_known_by_its_hash(tmp_path):
    trained(tmp_path / "a", method="cg")
    run = trained(tmp_path / "b", score=tmp_path / "a")
    average = "checkpoints/score/step-00000020/ema.safetensors"
    assert run.config["score_from"] == file_sha256(run.path / average) == file_sha256(tmp_path / "a" / average)


def test_a_shared_score_model_is_one_on_the_disk_without_its_optimiser(tmp_path, monkeypatch):
    trained(tmp_path / "a", method="cg")
    run = trained(tmp_path / "b", score=tmp_path / "a")

    def no_links(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    copied = trained(tmp_path / "c", score=tmp_path / "a")
    theirs, ours, other = (r / "checkpoints/score/step-00000020" for r in (tmp_path / "a", run.path, copied.path))
    for name in ("ema.safetensors", "weights.safetensors", "state.json"):
        assert (theirs / name).samefile(ours / name)
        assert not (theirs / name).samefile(other / name)
        assert (theirs / name).read_bytes() == (other / name).read_bytes()
    for folder in (ours, other):
        assert (folder / "optimizer.safetensors").stat().st_size < 100
        checkpoints.verify(folder)
    assert_same(weights(run), weights(copied))


def test_until_a_stage_and_on(tmp_path):
    half = trained(tmp_path / "r", until="score")
    assert half.describe()["step"] == {"score": 20}
    assert_same(weights(trained(tmp_path / "r")), weights(trained(tmp_path / "whole")))
