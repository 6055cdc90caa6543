"""A run directory from a stranger, full of links: nothing outside of it is ever written."""

from __future__ import annotations

import shutil

import pytest

import small
from command_line import typed_unwrapped
from selfcal.core.errors import SelfcalError
from selfcal.core.files import append_line, check_inside, make_folder, write_bytes, write_folder
from selfcal.core.turns import in_turn
from selfcal.training.lock import sole_owner

FEW = ["--count", "40", "--steps", "2", "--no-intervals"]
LINKS = {
    "samples": "folder",
    "labels": "folder",
    "metrics.json": "file",
    "guidance.svg": "file",
    "log.jsonl": "file",
    ".metrics.json.writing": "file",
    ".lock": "file",
    ".metrics.json.lock": "file",
    "doctor.json": "file",
    "doctor.html": "file",
    "doctor.npz": "file",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("own") / "run"
    small.train(out, steps=3, **{"run.save_every": 3})
    return out


@pytest.fixture
def victim(tmp_path):
    folder = tmp_path / "victim"
    (folder / "folder").mkdir(parents=True)
    (folder / "folder" / "photo.png").write_bytes(b"irreplaceable")
    (folder / "file").write_text("{}")
    return folder


@pytest.fixture(params=[None, *LINKS] if small.LONG else [None])
def strangers(tmp_path, run, victim, request):
    """Every name that a command could write to is a link to somewhere else; in the long form also each alone."""
    out = tmp_path / "strangers"
    shutil.copytree(run, out)
    for name, kind in LINKS.items() if request.param is None else [(request.param, LINKS[request.param])]:
        (out / name).unlink(missing_ok=True)
        (out / name).symlink_to(victim / kind)
    return out


def seen(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        ["sample", "RUN", "--count", "4", "--steps", "2", "--out", "RUN/samples/x.npz"],
        ["evaluate", "RUN", "--scales", "1,2", *FEW],
        ["doctor", "RUN", "--minutes", "0.01"],
        ["show", "RUN"],
        [*small.command("RUN", steps=6, **{"run.save_every": 3})],
    ],
    ids=lambda command: command[0],
)
def test_no_command_writes_through_a_link(capsys, strangers, victim, command):
    before = seen(victim)
    code, _, said = typed_unwrapped(capsys, *[word.replace("RUN", str(strangers)) for word in command])
    assert seen(victim) == before, said
    assert code in (0, 2), said
    if command[0] == "sample" and (strangers / "samples").is_symlink():
        assert "is a link that leads out of" in said


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/score", "checkpoints/classifier"])
def test_no_checkpoint_is_written_through_a_link(tmp_path, run, victim, name):
    out, before = tmp_path / "strangers", seen(victim)
    shutil.copytree(run, out)
    shutil.rmtree(out / name)
    (out / name).symlink_to(victim / "folder")
    with pytest.raises(SelfcalError):
        small.train(out, steps=3, **{"run.save_every": 3})
    assert seen(victim) == before


def test_the_writers_themselves(tmp_path, victim):
    home, before = tmp_path / "home", seen(victim)
    home.mkdir()
    (home / "file").symlink_to(victim / "file")
    (home / "folder").symlink_to(victim / "folder")
    (home / "nowhere").symlink_to(home / "nowhere")
    with pytest.raises(OSError, match="symbolic link"):
        append_line(home / "file", "x")
    with pytest.raises(OSError, match="Not a directory"):
        write_folder(home / "folder", [("a", b"b")])
    for name in ("folder", "folder/deeper", "nowhere/deeper"):
        with pytest.raises(SelfcalError, match="is a link that leads"):
            make_folder(home / name, within=home)
    for lock in (sole_owner(home), in_turn(home, "x")):
        for name in (".lock", ".x.lock"):
            (home / name).unlink(missing_ok=True)
            (home / name).symlink_to(victim / "file")
        with pytest.raises(SelfcalError, match="is a link"), lock:
            pass
    write_bytes(home / "file", b"mine")  # the link itself gives way
    assert not (home / "file").is_symlink()
    assert seen(victim) == before


def test_links_of_ones_own_are_followed(tmp_path, victim):
    """In the path that the user names, and within the run."""
    (tmp_path / "alias").symlink_to(victim)
    write_bytes(make_folder(tmp_path / "alias" / "new", within=tmp_path / "alias") / "x", b"y")
    assert (victim / "new" / "x").read_bytes() == b"y"
    (victim / "short").symlink_to("new")
    check_inside(victim / "short", within=victim)
