"""`selfcal app` as a user types it, and where it listens."""

from __future__ import annotations

import ast
import builtins
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import selfcal
from command_line import typed_unwrapped
from selfcal.app.server import Address
from selfcal.core.errors import SelfcalError

SOURCE = Path(selfcal.__file__).parent


def test_only_this_room_imports_gradio():
    for file in SOURCE.rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                names.add((node.module or "").split(".")[0])
        if names & {"gradio", "fastapi", "uvicorn", "starlette"}:
            assert file.parent.name == "app", file


def test_without_gradio_one_sentence_says_how_to_install_it(guided, capsys, monkeypatch):
    whole = builtins.__import__

    def without(name, *rest, **named):
        if name.split(".")[0] == "gradio":
            raise ImportError(name)
        return whole(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    code, out, err = typed_unwrapped(capsys, "app", guided.path)
    assert (code, out) == (2, "")
    assert err == "selfcal: selfcal app needs gradio: pip install 'selfcal[app]'"


def test_loopback_needs_no_token_and_anything_else_gets_one():
    assert Address("127.0.0.1", None, None).secured().token is None
    assert Address("::1", None, None).secured().token is None
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org", ""):
        made = Address(host, None, None).secured().token
        assert made is not None
        assert len(made) >= 24
        assert made != Address(host, None, None).secured().token
    given = Address("127.0.0.1", None, "a-token-of-some-length").secured()
    assert given.url(7860) == "http://127.0.0.1:7860/?token=a-token-of-some-length"
    assert Address("::1", None, None).url(1) == "http://[::1]:1/"


@pytest.mark.parametrize("token", ["", "short", "é" * 20, "with a space in it!!", "semi;colon;semi;colon"])
def test_tokens_that_are_none_are_refused(token):
    with pytest.raises(SelfcalError, match="token"):
        Address("0.0.0.0", None, token).secured()


def test_a_port_that_is_taken_is_said():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SelfcalError, match=f"port {port}: .*give --port another number"):
            Address("127.0.0.1", port, None).listen()
    with pytest.raises(SelfcalError, match="give --port another number"):
        Address("127.0.0.1", 10**6, None).listen()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere does not exist; the folder of a run"),
        (["{run}", "{run}"], "named twice"),
        (["{run}", "--token", "short"], "at least 16"),
        (["{run}", "--port", "1.5"], "not a whole number"),
    ],
)
def test_bad_input_is_one_sentence(guided, capsys, arguments, words):
    code, _, err = typed_unwrapped(capsys, "app", *[a.format(run=guided.path) for a in arguments])
    assert code == 2
    assert words in err


def test_points_are_refused(tmp_path, capsys):
    run = selfcal.train("moons", "cg", "4/class", tmp_path / "moons", steps=2)
    code, _, err = typed_unwrapped(capsys, "app", run.path)
    assert code == 2
    assert "holds points shaped (2,); the app shows images" in err


def test_it_serves_until_it_is_stopped(guided):
    """In a process of its own: the page, a refusal, Ctrl-C, nothing left behind."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "selfcal.cli", "app", str(guided.path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )
    try:
        line = process.stdout.readline()
        address = re.search(r"Open (http://127\.0\.0\.1:\d+/)", line)[1]
        with urllib.request.urlopen(address, timeout=60) as page:
            assert b"selfcal" in page.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}gradio_api/file={guided.path}/config.json", timeout=60)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert said.strip() == "stopped"
    finally:
        process.kill()


def test_suggest_writes_a_table_to_fill_in(guided, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    code, said, err = typed_unwrapped(capsys, "suggest", guided.path, "--count", "4", "--out", out)
    assert code == 0, err
    assert "4 images to label" in said
    lines = out.read_text("utf-8").splitlines()
    assert lines[0] == "file,label"
    assert [line[-1] for line in lines[1:5]] == [","] * 4
    assert lines[5:] == [f"{name},{label}" for name, label in guided.labels_seen()]
    assert [line[:-1] for line in lines[1:5]] == guided.suggest(4)
    before = out.read_bytes()
    code, _, err = typed_unwrapped(capsys, "suggest", guided.path, "--out", out)
    assert code == 2
    assert "is not written over" in err
    assert out.read_bytes() == before
    assert typed_unwrapped(capsys, "suggest", guided.path, "--out", tmp_path / "table.png")[0] == 2
    assert typed_unwrapped(capsys, "suggest", guided.path, "--count", "0", "--out", tmp_path / "b.csv")[0] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["labels.csv"]


def test_a_run_without_a_guide_suggests_nothing(told, tmp_path, capsys):
    code, _, err = typed_unwrapped(capsys, "suggest", told.path, "--out", tmp_path / "labels.csv")
    assert code == 2
    assert "no classifier" in err
