"""`selfcal doctor` and `run.diagnose()`: each spoiled run named by its number, commands that can be typed, a page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from itertools import pairwise

import pytest

import selfcal
from command_line import typed, typed_unwrapped
from selfcal.cli import commands
from selfcal.core.files import file_sha256
from selfcal.evaluation import judge
from selfcal.evaluation.diagnosis import measure
from selfcal.evaluation.diagnosis.commands import Commands
from selfcal.evaluation.diagnosis.findings import FAULT, WARNING, findings
from selfcal.evaluation.diagnosis.training_log import training_log

SMALL = {"score.width": 16, "classifier.width": 16, "conditional.width": 16, "run.log_every": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A few steps of training on points: a wretched guide, but a real run."""
    out = tmp_path_factory.mktemp("doctor") / "points"
    return selfcal.train("moons", "cg-sc-all", "4/class", out, steps=40, settings=SMALL)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    out = tmp_path_factory.mktemp("doctor") / "images"
    return selfcal.train("digits", "cg-sc-all", "4/class", out, steps=40, settings=SMALL)


def healthy():
    """What is measured of a run that nothing is wrong with."""
    sigmas = [0.02, 0.5, 1.0, 10.0]
    net = {"name": "classifier", "role": "classifier", "step": 900, "steps": 900, "preset_steps": 1000}
    net |= {"loss": "sc_fraction", "halfway": 0.3, "end": 0.2, "is_short": False, "fall": 0.33}
    quality = [{"sigma": s, "accuracy": 0.95, "ece": 0.04, "confidence": 0.97} for s in sigmas]
    return {
        "training": {"networks": [net], "asks_for_calibration": True, "sc_weight": 10.0, "preset_sc_weight": 10.0},
        "labels": {"labelled": 30, "examples": 1433, "fewest": 3},
        "knows": {"on": "of the test split", "images": 364, "by": "held-out", "by_sigma": quality,
                  "labelled": [row | {"accuracy": 1.0} for row in quality]},
        "acts": [{"sigma": s, "guide": 0.4, "score": 0.3} for s in sigmas],
        "pulls": [{"sigma": s, "gain": 0.1} for s in sigmas],
        "copies": {"samples": 500, "scale": 1.0, "copied": 0.08, "density": 1.2, "coverage": 0.97,
                   "real_coverage": 0.98},
        "suspects": {"judged": 30, "agreement": 0.96, "found": [
            {"name": "7", "label": "1", "instead": "3", "odds": 9.0}]},
        "scale": {"scale": 3.0, "curve": [{"scale": s, "label_free_fid": f} for s, f in ((1.0, 30.0), (3.0, 15.0),
                                                                                         (6.0, 15.5))]},
    }  # fmt: skip


def spoiled(m, *path, value):
    """The same measurements but for one value."""
    *parents, last = path
    for key in parents:
        m = m[key]
    m[last] = value


def test_nothing_is_said_of_a_good_run(run):
    assert findings(healthy(), Commands(run.directory)) == []


SPOILED = {
    "unfinished": (("training", "networks", 0, "step"), 300, "step 300 of 900"),
    "calibration-idle": (("training", "sc_weight"), 0, "40% of a zero score's loss"),
    "too-short": (("training", "networks", 0, "is_short"), True, "0.3 halfway and 0.2 at the end"),
    "memorising": (("copies",), {"samples": 500, "copied": 0.9, "density": 1.1, "coverage": 0.3, "real_coverage": 0.98},
                   "90% of 500 samples"),
    "wrong-labels": (("suspects", "found"), [{"name": str(i), "label": "1", "instead": "3"} for i in range(4)],
                     "4 of 30 labels"),
    "too-few-labels": (("knows", "by_sigma", 0, "accuracy"), 0.6, "60% of 364 others"),
    "over-confident": (("knows", "by_sigma", 2), {"sigma": 1.0, "accuracy": 0.6, "confidence": 0.9, "ece": 0.3},
                       "90% sure there and right on 60%"),
    "pulls-away": (("pulls", 1, "gain"), -0.9, "at 0.5"),
    "scale-at-the-edge": (("scale",), {"scale": 6.0, "curve": [{"scale": 3.0, "label_free_fid": 20.0},
                                                               {"scale": 6.0, "label_free_fid": 10.0}]}, "10.0 there"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_each_fault_is_named_with_its_number_and_a_command_that_can_be_typed(run, name):
    path, value, number = SPOILED[name]
    m = healthy()
    spoiled(m, *path, value=value)
    (found,) = findings(m, Commands(run.directory))
    assert found.name == name
    assert number in found.number
    words = shlex.split(found.command)
    assert words[0] == "selfcal"
    commands.app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_all_networks_that_were_trained_too_briefly_are_named(run):
    """A guide of full length for a tenth of a score model would mend nothing."""
    m = healthy()
    guide = m["training"]["networks"][0] | {"is_short": True, "steps": 176, "step": 176, "preset_steps": 2000}
    score = guide | {"name": "score", "role": "score", "steps": 508, "step": 508, "preset_steps": 5000}
    m["training"]["networks"] = [score, guide]
    (found,) = findings(m, Commands(run.directory))
    assert "score and the classifier networks" in found.title
    assert "score: 508 steps are 10% of the preset's 5,000" in found.number
    assert "classifier: 176 steps are 9% of the preset's 2,000" in found.number
    assert "--score" not in found.command
    assert "score.steps=5000" in found.command
    assert "classifier.steps=2000" in found.command


def test_causes_stand_before_consequences_and_faults_before_warnings(run):
    m = healthy()
    for path, value, _ in SPOILED.values():
        spoiled(m, *path, value=value)
    found = findings(m, Commands(run.directory))
    assert [f.name for f in found] == list(SPOILED)
    assert [f.level for f in found] == [FAULT] * 6 + [WARNING] * 3


def test_where_the_curve_is_flat_before_its_end_nothing_lies_at_the_edge(run):
    m = healthy()
    for last, names in ((15.0, []), (10.0, ["scale-at-the-edge"])):
        values = ((1.0, 30.0), (3.0, 15.5), (4.0, 16.0), (6.0, last))
        m["scale"] = {"scale": 6.0, "curve": [{"scale": s, "label_free_fid": f} for s, f in values]}
        assert [f.name for f in findings(m, Commands(run.directory))] == names


def test_short_trainings_that_tell_little_make_no_finding(run):
    m = healthy()
    spoiled(m, "knows", "by_sigma", 0, "accuracy", value=0.3)
    spoiled(m, "knows", "by_sigma", 2, value={"sigma": 1.0, "accuracy": 0.1, "confidence": 0.9, "ece": 0.8})
    m["knows"]["by"] = None
    assert findings(m, Commands(run.directory)) == []
    m["knows"]["by"] = "cross-fit"
    assert [f.name for f in findings(m, Commands(run.directory))] == ["too-few-labels"], "no better than chance"
    m["knows"]["by"] = "stand-in"
    assert [f.name for f in findings(m, Commands(run.directory))] == ["too-few-labels", "over-confident"]


def test_the_advice_keeps_what_the_user_asked_for_and_shares_the_score_model(run):
    command = shlex.split(Commands(run.directory).anew("classifier.steps=9000"))
    options = dict(zip(command[3::2], command[4::2], strict=True))
    assert options["--labels"] == "4/class"
    assert options["--score"] == str(run.path)
    assert "--steps" not in options, "they were too few"
    settings = dict(s.split("=") for s in (w for k, w in pairwise(command) if k == "--set"))
    assert settings["classifier.steps"] == "9000"
    assert settings["classifier.width"] == "16"


def test_a_model_that_was_trained_elsewhere_is_not_called_short(run, tmp_path):
    """It counts as one step; and what is trained again is its guide alone."""
    shutil.copytree(run.path, tmp_path / "r")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    config["settings"]["score"]["steps"] = 1
    config["asked"]["settings"] |= {"score.steps": 1, "noise.sigma_max": 9.0}
    (tmp_path / "r" / "config.json").write_text(json.dumps(config))
    directory = selfcal.load(tmp_path / "r").directory
    score, guide = training_log(directory).networks
    assert (score.is_short, guide.is_short) == (False, True)
    command = Commands(directory).anew("classifier.steps=9000")
    assert command.startswith("selfcal adopt MODEL --data moons ")
    assert not re.search(r"--score|--set (score|noise)\.", command)
    commands.app.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


def test_points_are_diagnosed_without_a_label_beyond_those_shown(run):
    """Guides of a part of the labels judge it; nothing but the doctor's own files is written."""
    before = {p.name for p in run.path.iterdir()}
    diagnosis = run.diagnose(minutes=0.5, held_out=False)
    knows = diagnosis.measured["knows"]
    assert knows["by"] == "stand-in"
    assert knows["images"] > 100
    assert len(knows["by_sigma"]) == len(diagnosis.measured["acts"]) == len(diagnosis.measured["pulls"]) == 9
    assert diagnosis.findings[0].name == "too-short"
    assert diagnosis.findings[0].title in str(diagnosis)
    new = {p.name for p in run.path.iterdir()} - before
    assert new <= {"doctor.json", "doctor.npz", "doctor-suspects.csv"}


def test_where_labels_do_not_spread_short_trainings_judge(run, monkeypatch):
    monkeypatch.setattr(measure, "TRUSTED_STAND_IN", 2.0)
    knows = run.diagnose(minutes=0.5, held_out=False).measured["knows"]
    assert knows["by"] == "cross-fit"
    assert "short trainings of 40 steps" in knows["on"], "as long as the run's own"
    assert len(knows["by_sigma"]) == 9


def test_the_command_writes_a_page_that_opens_offline(images, capsys, monkeypatch):
    monkeypatch.setattr(measure, "SAMPLES", (50, 50))
    monkeypatch.setattr(measure, "CURVE", 50)
    monkeypatch.setattr(judge, "STUDENT_STEPS", 10)
    code, out, _ = typed(capsys, "doctor", images.path)
    assert code == 0
    assert "1. fault: the score and the classifier networks were trained too briefly" in out
    page = (images.path / "doctor.html").read_text("utf-8")
    questions = "Does the guide know?", "Does calibration act?", "Does it pull the right way?", "Is it memorising?"
    for question in (*questions, "Are labels wrong?", "Which λ?"):
        assert question in page
    assert page.count("<svg") == 7
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#]+)""", page)
    assert links
    assert all(link.startswith("data:") for link in links), "nothing may be fetched"
    (images.path / "doctor.html").unlink()
    assert typed(capsys, "report", images.path)[0] == 0
    assert (images.path / "doctor.html").read_text("utf-8") == page, "made of the files alone"


def test_json_is_all_that_is_printed(run, capsys):
    code, out, _ = typed(capsys, "doctor", run.path, "--json", "--minutes", 0.2)
    assert code == 0
    found = json.loads(out)
    assert found["findings"][0].keys() >= {"name", "level", "title", "number", "advice", "command", "values"}
    kept = json.loads((run.path / "doctor.json").read_text())
    assert kept.pop("pictures_sha256") == file_sha256(run.path / "doctor.npz"), "pictures of this diagnosis"
    assert kept == found


def test_a_conditional_model_has_no_guide_and_is_asked_the_rest(tmp_path):
    run = selfcal.train("moons", "cond", "4/class", tmp_path / "r", steps=20, settings=SMALL)
    diagnosis = run.diagnose(minutes=0.2)
    assert diagnosis.measured["acts"] == diagnosis.measured["pulls"] == diagnosis.measured["scale"]["curve"] == []
    assert diagnosis.measured["copies"]["samples"] >= 50


def test_a_run_that_diverged_has_one_finding(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "r")
    report = {"network": "classifier", "step": 7, "losses": {"ce": "nan"}, "grad_norm": "nan"}
    (tmp_path / "r" / "diverged.json").write_text(json.dumps(report))
    (finding,) = selfcal.load(tmp_path / "r").diagnose().findings
    assert finding.name == "diverged"
    assert "step 7" in finding.number
    assert "--set classifier.lr=0.0003" in finding.command


def test_bad_input_is_one_sentence(run, tmp_path, capsys):
    code, _, err = typed_unwrapped(capsys, "doctor", tmp_path)
    assert (code, "not a run directory" in err) == (2, True)
    code, _, err = typed_unwrapped(capsys, "doctor", run.path, "--minutes", 0)
    assert (code, "a time above 0" in err) == (2, True)
    for spoiled_file in ("[]", '{"about": {}, "findings": [{}], "notes": [], "measured": {}}'):
        (tmp_path / "doctor.json").write_text(spoiled_file)
        code, _, err = typed_unwrapped(capsys, "report", tmp_path)
        assert code == 2, err
        assert not (tmp_path / "doctor.html").exists()


def test_training_points_to_the_doctor_when_something_is_off(tmp_path, capsys):
    words = ["train", "moons", "--labels", "1/class", "--steps", "20", "--out", tmp_path / "r"]
    words += ["--set", "terms.sc_weight=0", "--set", "score.width=16", "--set", "classifier.width=16"]
    code, out, _ = typed(capsys, *words)
    assert code == 0
    assert "self-calibration has the weight 0" in out
    assert "2 labels for 2 classes are very few" in out
    assert f"selfcal doctor {tmp_path / 'r'}" in out


def test_info_says_versions_device_and_threads(capsys):
    code, out, _ = typed(capsys, "info")
    assert code == 0
    for word in ("selfcal", "torch", "device", "threads", "cores"):
        assert re.search(rf"^{word} +\S", out, flags=re.MULTILINE), word
    found = json.loads(typed(capsys, "info", "--json")[1])
    assert found["selfcal"] == selfcal.__version__
    assert found["threads"] >= 1
