"""Numbers and names as a user types them: finite or an error, one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import selfcal
import small
from command_line import typed, typed_unwrapped
from mutations import json_values
from selfcal.cli import commands
from selfcal.core import bounds
from selfcal.core import settings as settings_of_selfcal
from selfcal.core.errors import SelfcalError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Of digits: images, and quick."""
    out = tmp_path_factory.mktemp("words") / "run"
    return selfcal.train("digits", "cg", 0.1, out, steps=2, settings=small.SETTINGS).path


def refused(capsys, *arguments):
    """The one line that was said."""
    code, out, err = typed(capsys, *arguments)
    lines = [line for line in err.splitlines() if line.strip()]
    assert code == 2, (out, err)
    assert lines[-1].startswith("selfcal: ")
    assert "Traceback" not in err
    return lines[-1]


# --- threads ----------------------------------------------------------------------------------------


def test_a_run_goes_on_with_the_threads_it_began_with(tmp_path, capsys):
    seen = []

    def watch(*_):
        seen.append(torch.get_num_threads())

    def train(out, **more):
        options = {"steps": 6, "settings": small.SETTINGS, "on_step": watch, **more}
        return selfcal.train("moons", "cg", 0.03, tmp_path / out, **options)

    torch.set_num_threads(2)
    train("whole")
    train("run", until="score")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["threads"] == 2
    torch.set_num_threads(1)
    capsys.readouterr()
    train("run")
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1, "as before"
    assert "goes on with 2 threads, as it began, and not the 1 of this machine" in capsys.readouterr().err
    small.assert_same(tmp_path / "whole", tmp_path / "run")
    train("run", steps=9)
    assert set(seen) == {2}, "made longer, too"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["threads"] == 2


# --- numbers ----------------------------------------------------------------------------------------

HUGE = "9" * 30
SAMPLED = {
    "scale": ("--scale", "1e300"),
    "scale that is none": ("--scale", "nan"),
    "eta that is none": ("--option", "eta=nan"),
    "eta without end": ("--option", "eta=inf"),
    "seed": ("--seed", HUGE),
    "seed of 5000 digits": ("--seed", "9" * 5000),
    "count": ("--count", HUGE),
    "count beyond the memory": ("--count", str(10**12)),
    "steps": ("--steps", HUGE),
    "steps of the sampler": ("--steps", str(10**7)),
    "class that only looks like a number": ("--classes", "²"),
    "class of many digits": ("--classes", HUGE),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_sample(run, tmp_path, capsys, name):
    """One sentence, and no file."""
    out = tmp_path / "x.npz"
    few = {"--count": "4", "--steps": "2"} | dict([SAMPLED[name]])
    said = refused(capsys, "sample", run, *(word for pair in few.items() for word in pair), "--out", out)
    assert len(said) < 400
    assert not any(tmp_path.iterdir())


TRAINED = {
    "seed": (("--seed", HUGE), "--seed"),
    "steps": (("--steps", HUGE), "score.steps"),
    "batch": (("--set", "score.batch=99999999999"), "score.batch"),
    "batch beyond the memory": (("--set", "score.batch=16000000", "--set", "score.width=4096"), "GiB of memory"),
    "network beyond the memory": (
        ("--set", "classifier.width=65536", "--set", "classifier.blocks=64"),
        "GiB of memory",
    ),
    "sigma_max": (("--set", "noise.sigma_max=inf"), "finite"),
    "learning rate": (("--set", "score.lr=nan"), "finite"),
    "minutes": (("--minutes", "1e300"), "--minutes"),
    "sampler": (("--set", "sampling.sampler=nope"), "unknown sampling.sampler 'nope'"),
    "labels": (("--labels", f"{HUGE}/class"), "--labels"),
}


@pytest.mark.parametrize("name", TRAINED)
def test_train(tmp_path, capsys, name):
    """Told before anything is written."""
    words, expected = TRAINED[name]
    labels = () if "--labels" in words else ("--labels", "0.1")
    assert expected in refused(capsys, "train", "digits", *labels, *words, "--out", tmp_path / "run")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "--count", str(10**12)),
        ("evaluate", "--minutes", "1e300"),
        ("evaluate", "--scales", "0,1e400"),
        ("doctor", "--minutes", "nan"),
    ],
)
def test_commands_on_a_run(run, capsys, words):
    refused(capsys, words[0], run, *words[1:])


@pytest.mark.parametrize(
    "words",
    [("toy", "--seeds", HUGE), ("toy", "--jobs", HUGE), ("toy", "--steps", HUGE), ("toy", "--seed", HUGE)]
    + [
        ("compare", "moons", *more)
        for more in (("--seeds", HUGE), ("--jobs", HUGE), ("--seed", HUGE), ("--count", "9" * 15))
    ],
)
def test_studies(tmp_path, capsys, words):
    more = ("--methods", "cg", "--labels", "0.03") if words[0] == "compare" else ()
    refused(capsys, *words, *more, "--out", tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_a_strangers_run_with_a_noise_without_end(run, tmp_path, capsys):
    file = run / "config.json"
    kept = file.read_bytes()
    try:
        for value in ("Infinity", "NaN", "1e300", "-1"):
            config = json.loads(kept)
            config["settings"]["noise"]["sigma_max"] = "HERE"
            file.write_text(json.dumps(config).replace('"HERE"', value))
            assert "config.json cannot be read: settings.noise" in refused(
                capsys, "sample", run, "--count", "2", "--out", tmp_path / "x.npz"
            )
    finally:
        file.write_bytes(kept)
    assert not any(tmp_path.iterdir())


def test_networks_that_leave_the_finite_numbers_make_no_samples(run):
    opened = selfcal.load(run)
    opened.generator.networks["score"].network.register_forward_hook(lambda _, __, out: out * torch.nan)
    with pytest.raises(SelfcalError, match="left the finite numbers"):
        opened.sample(count=2, steps=2)


def test_memory_that_is_used_up_is_one_sentence(monkeypatch, capsys):
    def full(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr(commands, "app", full)
    assert "the memory of this machine is used up" in refused(capsys, "methods")


@pytest.mark.parametrize(
    ("value", "fine"), [(1, True), (bounds.MOST_SEEDS, True), (0, False), (10**40, False), (True, False)]
)
def test_whole_numbers(value, fine):
    if fine:
        assert bounds.check_whole("--n", value, 1, bounds.MOST_SEEDS) == value
    else:
        with pytest.raises(SelfcalError, match="--n"):
            bounds.check_whole("--n", value, 1, bounds.MOST_SEEDS)


FAR = [2**63, 2**64, -(2**70), 10**13, 10**40]  # beyond every bound; none that is merely slow


@settings(max_examples=2000 if small.LONG else 40)
@given(data=st.data())
def test_samples_of_any_numbers_are_finite_or_an_error(run, tally, data):
    tally["numbers: sampling"] += 1
    near = st.integers(-2, 4)
    far = st.one_of(near, near, st.sampled_from(FAR))
    how = {"steps": data.draw(far), "count": data.draw(far), "seed": data.draw(st.integers(-(2**70), 2**70))}
    how["scale"] = data.draw(st.one_of(st.floats(), st.floats(0, 1e38), st.floats(0, 10)))
    if data.draw(st.booleans()):
        how |= {"sampler": "dpm++2m-sde", "eta": data.draw(st.floats())}
    else:
        how |= {"sampler": "heun", "churn": data.draw(st.floats())}
    with suppress(SelfcalError):
        assert selfcal.load(run).sample(**how).x.isfinite().all()


@settings(max_examples=2000 if small.LONG else 100)
@given(key=st.sampled_from(sorted(settings_of_selfcal.keys())), value=json_values | st.floats() | st.sampled_from(FAR))
def test_settings_of_any_value_are_taken_or_an_error(tally, key, value):
    tally["numbers: settings"] += 1
    with suppress(SelfcalError):
        new = settings_of_selfcal.Settings().changed({key: value}).dotted()
        assert not isinstance(new[key], float) or math.isfinite(new[key])


# --- words ------------------------------------------------------------------------------------------


def test_markup_in_a_path_is_shown(run, tmp_path, capsys):
    place = tmp_path / "[/bold][final]"
    place.mkdir(parents=True)
    (place / "run").symlink_to(run)
    code, said, err = typed(capsys, "sample", place / "run", "--count", "2", "--steps", "2", "--out", place / "x.npz")
    assert code == 0, err
    assert "[/bold][final]/x.npz" in said
    assert "[final]" in refused(capsys, "show", tmp_path / "[final]")
    assert typed(capsys, "show", place / "run")[0] == 0


def test_a_terminal_that_knows_ascii_alone(run):
    """In processes of their own; `show` used to blame metrics.json."""
    selfcal.load(run).evaluate(count=40, steps=2, scales=[0, 1], intervals=False)
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "200"}
    for words in (("methods",), ("show", str(run))):
        done = subprocess.run(
            [sys.executable, "-m", "selfcal.cli", *words], env=environment, capture_output=True, timeout=200
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.decode("ascii")
    assert b"lambda" in done.stdout


def test_json_is_json_on_any_terminal(run, capsys, monkeypatch):
    from selfcal.cli import terminal

    monkeypatch.setattr(terminal, "knows_all_letters", lambda stream: False)
    terminal.print_json({"λ": "é"})
    said = capsys.readouterr().out
    assert said.isascii()
    assert json.loads(said) == {"λ": "é"}


def test_folders_whose_names_are_not_utf8(run, tmp_path, capsys):
    """A run in one is used; data in one is refused, since a run could not tell of it."""
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    (odd / "run").symlink_to(run)
    code, said, err = typed(capsys, "sample", odd / "run", "--count", "2", "--steps", "2", "--out", odd / "x.npz")
    assert code == 0, err
    assert r"caf\xe9/x.npz" in said
    code, said, _ = typed(capsys, "show", odd / "run", "--json")
    assert code == 0
    assert json.loads(said)["path"].endswith("run")
    for name in ("a", "b"):
        (odd / "data" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(odd / "data" / name / "0.png")
    assert "UTF-8" in refused(capsys, "train", odd / "data", "--out", tmp_path / "new")
    good = tmp_path / "data"
    (odd / "data").rename(good)
    (good / "a" / "0.png").rename(good / "a" / os.fsdecode(b"\xe9.png"))
    assert r"\xe9.png is not written in UTF-8" in refused(capsys, "train", good, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("named", ["", "relative", "./cache"])
def test_a_cache_variable_that_names_no_place_makes_no_folder_here(monkeypatch, tmp_path, named):
    from selfcal.core.files import cache_folder
    from selfcal.data.downloads import places

    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == places()[-1] == tmp_path / ".cache" / "selfcal"


def test_more_samples_than_the_disk_holds_are_refused_before_the_work(run, tmp_path, capsys):
    out = tmp_path / "new" / "x.npz"
    said = refused(capsys, "sample", run, "--count", str(10**15), "--out", out)
    assert "GiB free" in said
    assert "--count" in said
    assert not out.parent.exists()


def test_a_cache_that_cannot_be_written_does_not_stop_evaluate(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, _, err = typed_unwrapped(
        capsys, "evaluate", run, "--count", "40", "--steps", "2", "--scales", "1", "--no-intervals"
    )
    assert code == 0, err


def test_a_full_disk_names_the_file(run, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = refused(capsys, "sample", run, "--count", "2", "--steps", "2", "--out", tmp_path / "x.npz")
    assert "No space left on device" in said
    assert "x.npz" in said
    monkeypatch.setattr(commands, "app", full)
    assert "No space left on device: a file that the system does not name" in refused(capsys, "methods")
