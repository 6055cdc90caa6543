"""The command line as a user types it, in a process of its own where exit codes matter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import selfcal
from command_line import typed

COMMANDS = ("demo", "methods", "train", "adopt", "sample", "evaluate", "compare", "report", "toy", "show", "export")
COMMANDS += ("app", "suggest", "doctor", "info")
QUICK = ("--set", "score.width=16", "--set", "classifier.width=16")


def selfcal_in(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "selfcal.cli", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    """A few steps of training: wrong pictures, but a real run."""
    out = tmp_path_factory.mktemp("cli") / "run"
    return selfcal.train(
        "digits", "cg-sc-all", 0.02, out, steps=30, settings={"score.width": 32, "classifier.width": 32}
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(capsys, command):
    code, out, _ = typed(capsys, command, "--help")
    assert code == 0
    assert f"Example: selfcal {command}" in " ".join(out.split())
    assert "As for" not in out, "a reader of one help need not open another"
    options = [line for line in out.splitlines() if re.match(r"│ [ *]* ?--", line)]
    assert [o for o in options if re.search(r"--\S.*?  +[^\s\[│]", o) is None] == [], "every option has its help"


def test_help_lists_the_commands_quickly(tmp_path):
    done = selfcal_in(tmp_path, "--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    loading = "import sys, selfcal.cli.commands; print('torch' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", loading], capture_output=True, text=True)
    assert loaded.stdout.strip() == "False", "importing the command line must not wait for torch"


def test_methods_prints_every_row(capsys):
    from selfcal.methods.table import METHODS

    code, out, _ = typed(capsys, "methods")
    assert code == 0
    assert all(name in out for name in METHODS)
    assert "sc(all)" in out


def test_train_sample_evaluate_show_as_a_user_types_them(tmp_path):
    train = ("train", "digits", "--method", "cg", "--labels", "4/class", "--steps", "20", "--out", "run", *QUICK)
    done = selfcal_in(tmp_path, *train)
    assert done.returncode == 0, done.stderr
    assert "cg · classifier (2 of 2): 20/20" in done.stderr
    assert "40 of 1433 training examples labelled" in done.stdout

    again = selfcal_in(tmp_path, *train)
    assert again.returncode == 0
    assert "classifier" not in again.stderr, "a finished run is not trained again"

    done = selfcal_in(tmp_path, "sample", "run", "--classes", "3,5", "--count", "8", "--scale", "1.5", "--out", "s.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "s.npz") as made:
        assert made["x"].shape == (8, 1, 8, 8)
        assert made["y"].tolist() == [3] * 4 + [5] * 4
    assert Image.open(tmp_path / "s.png").size[0] > 100

    done = selfcal_in(tmp_path, "evaluate", "run", "--scales", "0.5,1", "--count", "60", "--steps", "4")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert [r["scale"] for r in report["results"]] == [0.5, 1.0]
    assert sum(r["chosen"] for r in report["results"]) == 1
    assert report["guide_split"] == "test"
    for result in report["results"]:
        for name, (low, high) in result["intervals"].items():
            assert low <= result[name] <= high, name
        assert set(result["intervals"]) >= {"intra_fid", "fid", "density", "coverage", "accuracy", "ece", "kid"}
        assert result["biased"]

    done = selfcal_in(tmp_path, "show", "run", "--json")
    about = json.loads(done.stdout)
    assert about["step"] == {"score": 20, "classifier": 20}
    assert about["finished"]
    assert len(about["weights_sha256"]["score"]) == 64
    assert about["metrics"] == report
    assert "4/class (40 seen)" in selfcal_in(tmp_path, "show", "run").stdout


def test_sample_into_a_folder_of_pngs(capsys, digits_run, tmp_path):
    code, out, _ = typed(
        capsys, "sample", digits_run.path, "--classes", "0,7", "--count", "5", "--steps", "3", "--out", tmp_path / "p"
    )
    assert code == 0
    assert "5 samples" in out
    assert len(list((tmp_path / "p" / "0").glob("*.png"))) == 3
    assert len(list((tmp_path / "p" / "7").glob("*.png"))) == 2
    assert Image.open(tmp_path / "p" / "7" / "00000.png").size == (8, 8)
    assert (tmp_path / "p" / "grid.png").exists()


@pytest.mark.parametrize("sampler", ["pc", "euler", "heun", "dpm++2m", "dpm++2m-sde"])
@pytest.mark.parametrize("guide", ["classifier", "classifier-only", "classifier-only-unconditional", "unconditional"])
def test_every_sampler_with_every_guide(digits_run, sampler, guide):
    made = digits_run.sample(classes=[1], count=2, sampler=sampler, steps=2, guide=guide)
    assert made.made["sampler"] == sampler
    assert made.x.abs().max() <= 1


def test_sampler_options(capsys, digits_run, tmp_path):
    base = ("sample", digits_run.path, "--count", "2", "--steps", "3", "--out", tmp_path / "s.npz")
    assert typed(capsys, *base, "--sampler", "heun", "--option", "churn=4")[0] == 0
    (tmp_path / "s.npz").unlink()  # what is there is never written over
    code, _, err = typed(capsys, *base, "--sampler", "heun", "--option", "eta=1")
    assert code == 2
    assert "heun has no such option: eta" in err


def test_the_same_seed_gives_the_same_images(digits_run):
    a, b, c = (digits_run.sample(count=4, steps=3, seed=s).x for s in (1, 1, 2))
    assert (a == b).all()
    assert (a != c).any()


BAD = {
    "unknown data": (("train", "digts"), "did you mean 'digits'"),
    "unknown method": (("train", "digits", "--method", "cgsc-all"), "did you mean 'cg-sc-all'"),
    "labels above one": (("train", "digits", "--labels", "2"), "at most at 1"),
    "labels below one per class": (("train", "digits", "--labels", "0.001"), "without a label"),
    "count below one": (("train", "digits", "--labels", "0/class"), "at least 1 label per class"),
    "more than there are": (("train", "digits", "--labels", "999/class"), "which has 142 images"),
    "half a step": (("train", "digits", "--steps", "1.5"), "is not a whole number"),
    "missing csv": (("train", "digits", "--labels", "no.csv"), "does not exist"),
    "unknown setting": (("train", "digits", "--set", "terms.sc=1"), "unknown setting 'terms.sc'"),
    "bad setting": (("train", "digits", "--set", "score.width=wide"), "score.width = 'wide'"),
    "bad steps": (("train", "digits", "--steps", "0"), "score.steps = 0"),
    "unknown preset": (("train", "digits", "--preset", "cifar"), "unknown preset"),
    "missing score run": (("train", "digits", "--score", "nowhere"), "does not exist; the folder of a run"),
}


@pytest.mark.parametrize("case", BAD, ids=BAD)
def test_bad_training_input_is_one_sentence_and_writes_nothing(capsys, tmp_path, case):
    arguments, message = BAD[case]
    code, out, err = typed(capsys, *arguments, "--out", tmp_path / "run")
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "run").exists()


BAD_DATA = {
    "pickled objects": (lambda p: np.savez(p / "d.npz", x=np.array([{}], dtype=object)), "d.npz", "pickled objects"),
    "nan pixels": (lambda p: np.savez(p / "d.npz", x=np.full((4, 2, 2), np.nan)), "d.npz", "NaN or infinite"),
    "unreadable image": (lambda p: (p / "d" / "a.png").write_bytes(b"no"), "d", "cannot be read as an image"),
    "different sizes": (
        lambda p: [Image.new("L", (4, s)).save(p / "d" / f"{s}.png") for s in (4, 5)],
        "d",
        "different",
    ),
    "an empty folder": (lambda p: None, "d", "holds no images"),
    "no labels anywhere": (lambda p: Image.new("L", (4, 4)).save(p / "d" / "0.png"), "d", "pass a CSV"),
}


@pytest.mark.parametrize("case", BAD_DATA, ids=BAD_DATA)
def test_bad_data_is_one_sentence_and_writes_nothing(capsys, tmp_path, case):
    make, name, message = BAD_DATA[case]
    (tmp_path / "d").mkdir()
    make(tmp_path)
    code, _, err = typed(capsys, "train", tmp_path / name, "--labels", "1/class", "--out", tmp_path / "run")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "run").exists()


def test_a_class_without_labels_in_a_csv(capsys, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "d" / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "d" / name / "0.png")
    (tmp_path / "l.csv").write_text("file,label\ncat/0.png,cat\n")
    arguments = ("train", tmp_path / "d", "--labels", tmp_path / "l.csv", "--out", tmp_path / "run")
    code, _, err = typed(capsys, *arguments)
    assert code == 2
    assert "class 'dog' has no label" in err
    (tmp_path / "l.csv").write_text("file,label\ncat/9.png,cat\n")
    code, _, err = typed(capsys, *arguments)
    assert code == 2
    assert "'cat/9.png', which is not in d" in err


def test_bad_sampling_and_evaluation_input(capsys, digits_run, tmp_path):
    run = digits_run.path
    for arguments, message in [
        (("sample", tmp_path), "not a run directory"),
        (("sample", run, "--classes", "eleven"), "unknown class 'eleven'"),
        (("sample", run, "--count", "0"), "at least 1 is needed"),
        (("sample", run, "--sampler", "henu"), "did you mean 'heun'"),
        (("sample", run, "--guide", "none"), "unknown guide"),
        (("sample", run, "--option", "eta"), "key=value"),
        (("sample", run, "--steps", "0"), "--steps 0"),
        (("sample", run, "--count", "many"), "count"),
        (("evaluate", run, "--scales", "a,b"), "'a' is not a number"),
        (("evaluate", run, "--scales", "-1"), "at least 0"),
        (("evaluate", run, "--count", "5"), "at least 2 images for each"),
        (("evaluate", run, "--features", "fid"), "unknown feature extractor"),
        (("show", tmp_path / "gone"), "gone does not exist; the folder of a run"),
        (("presets", "x"), "x: more than this command takes"),
        (("shwo",), "shwo"),
        (("train",), "DATA"),
    ]:
        code, _, err = typed(capsys, *arguments)
        assert code == 2, arguments
        assert message in " ".join(err.split()), err
        assert "Traceback" not in err
    assert not (run / "samples").exists()
    assert not (run / "metrics.json").exists()


def test_an_output_folder_with_another_run(capsys, digits_run):
    code, _, err = typed(capsys, "train", "digits", "--method", "cg", "--out", digits_run.path)
    assert code == 2
    assert "holds another run; it differs in method" in " ".join(err.split())


def test_a_damaged_config(capsys, tmp_path):
    (tmp_path / "config.json").write_text('{"method": "cg"')
    code, _, err = typed(capsys, "show", tmp_path)
    assert code == 2
    assert "cannot be read" in err


def test_folder_of_images_end_to_end(capsys, tmp_path):
    """A practitioner's pile: colour images, a few labelled by a CSV, no truth for the rest."""
    rng = np.random.default_rng(0)
    pile = tmp_path / "pile"
    pile.mkdir()
    for i in range(24):
        pixels = rng.integers(0, 80, (4, 4, 3), dtype=np.uint8)
        pixels[..., i % 2] += 150
        Image.fromarray(pixels).save(pile / f"{i:02d}.png")
    rows = [f"{i:02d}.png,{'red' if i % 2 == 0 else 'green'}" for i in range(6)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]))
    arguments = ("--labels", tmp_path / "labels.csv", "--steps", "20", "--out", tmp_path / "run", *QUICK)
    code, out, err = typed(capsys, "train", pile, *arguments)
    assert code == 0, err
    assert "6 of 24 training examples labelled" in out
    code, out, _ = typed(capsys, "sample", tmp_path / "run", "--classes", "red", "--count", "4", "--steps", "4")
    assert code == 0
    assert len(list((tmp_path / "run" / "samples" / "set-001" / "red").glob("*.png"))) == 4
    code, out, err = typed(capsys, "evaluate", tmp_path / "run", "--steps", "4")
    assert code == 0, err
    (result,) = json.loads((tmp_path / "run" / "metrics.json").read_text())["results"]
    assert result["features"] == "pixels"
    assert result["intra_density"] is None, "three images per class cannot support k = 5"
    assert result["accuracy"] is None
    assert result["fid"] > 0


def test_what_a_newcomer_stumbled_over(capsys, digits_run, tmp_path):
    run, file = digits_run.path, tmp_path / "notes.txt"
    file.write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.png").write_text("mine")
    (tmp_path / "text.npz").write_text("hi")
    np.savez(tmp_path / "zero_one.npz", x=np.random.default_rng(0).random((6, 4, 4)), y=np.arange(6) % 2)
    np.savez(tmp_path / "one_class.npz", x=np.zeros((6, 2)), y=np.zeros(6, dtype=int))
    for arguments, message in [
        (("sample", run, "--scale", "nan"), "at least 0 is needed"),
        (("sample", run, "--scale", "-1"), "at least 0 is needed"),
        (("evaluate", run, "--scales", "nan"), "--scales nan"),
        (("sample", run, "--out", file), "is a file, not a folder"),
        (("sample", run, "--out", file / "x"), "is a file, not a folder"),
        (("sample", run, "--out", file / "x.npz"), "is a file, not a folder"),
        (("sample", run, "--out", tmp_path / "full"), "is not empty"),
        (("sample", run, "--out", tmp_path / "text.npz"), "exists already and is not written over"),
        (("sample", run, "--out", tmp_path / "x.npy"), "not written as .npy; give a name that ends in .npz"),
        (("sample", run, "--classes", ""), "unknown class ''"),
        (("train", "", "--out", tmp_path / "r"), "no data is named"),
        (("train", tmp_path / "gone", "--out", tmp_path / "r"), "does not exist"),
        (("train", tmp_path / "text.npz", "--out", tmp_path / "r"), "it is not one"),
        (
            ("train", tmp_path / "zero_one.npz", "--labels", "1/class", "--out", tmp_path / "r"),
            "as if it spanned [0, 1]",
        ),
        (("train", tmp_path / "one_class.npz", "--labels", "1/class", "--out", tmp_path / "r"), "at least two"),
        (("train", "digits", "--set", "noise.sigma_min=100", "--out", tmp_path / "r"), "must be larger"),
    ]:
        code, _, err = typed(capsys, *arguments)
        assert code == 2, arguments
        assert message in " ".join(err.split()), (arguments, err)
        assert "{" not in err
    assert not (tmp_path / "r").exists()
    assert file.read_text() == "mine"


def test_samples_of_a_run_never_replace_earlier_ones(capsys, digits_run):
    for count in (20, 2):
        assert typed(capsys, "sample", digits_run.path, "--count", count, "--steps", "2")[0] == 0
    sets = [len(list((digits_run.path / "samples" / name).glob("*/*.png"))) for name in ("set-001", "set-002")]
    assert sets == [20, 2]
    import shutil

    shutil.rmtree(digits_run.path / "samples")


def test_divergence_does_not_let_a_script_go_on(capsys, tmp_path):
    code, out, _ = typed(capsys, "train", "moons", "--set", "score.lr=1e9", "--steps", "60", "--out", tmp_path / "r")
    assert code == 3
    assert "diverged: the score network at step" in " ".join(out.split())
    code, out, _ = typed(capsys, "evaluate", tmp_path / "r")
    assert "diverged" in out
    assert json.loads((tmp_path / "r" / "metrics.json").read_text())["diverged"]


def test_a_reader_that_has_seen_enough(digits_run):
    command = f"{sys.executable} -m selfcal.cli show {digits_run.path} --json | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("{")
    assert "Traceback" not in done.stderr


def test_an_interrupted_run_says_how_to_go_on(tmp_path):
    import signal
    import time

    arguments = ["train", "moons", "--steps", "100000", "--out", str(tmp_path / "r")]
    process = subprocess.Popen(
        [sys.executable, "-m", "selfcal.cli", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for _ in range(300):
        time.sleep(0.2)
        if (tmp_path / "r" / "log.jsonl").exists():
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues" in err


def test_unusual_files_in_a_folder(capsys, tmp_path):
    """Hidden files are passed over; a header with spaces is understood; a comma in a class's name is found."""
    for name in ("x,a", "b"):
        (tmp_path / "d" / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "d" / name / "0.png")
        (tmp_path / "d" / name / "._0.png").write_bytes(b"macOS")
    (tmp_path / "l.csv").write_text('file, label\r\n"x,a/0.png", "x,a"\r\nb/0.png, b\r\n')
    out = tmp_path / "r"
    assert (
        typed(capsys, "train", tmp_path / "d", "--labels", tmp_path / "l.csv", "--steps", "2", "--out", out, *QUICK)[0]
        == 0
    )
    assert typed(capsys, "sample", out, "--classes", "x,a", "--count", "2", "--steps", "2")[0] == 0
    assert len(list((out / "samples" / "set-001" / "x,a").glob("*.png"))) == 2
