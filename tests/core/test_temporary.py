"""What is not whole yet: nobody foresees its name, and what a dead writer left is told from what a living one holds."""

from __future__ import annotations

import os
import signal
import stat
import threading

import pytest

from selfcal.core import temporary
from selfcal.core.files import filling_folder, write_bytes, write_folder, write_numbered, writing
from selfcal.core.temporary import file_in, folder_in, is_temporary


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_names_cannot_be_foreseen_and_are_recognised(tmp_path):
    found = set()
    for _ in range(50):
        with file_in(tmp_path) as (path, _):
            found.add(path.name)
    assert len(found) == 50
    assert all(is_temporary(name) for name in found)
    assert not any(map(is_temporary, ("metrics.json", ".writing", ".x.writing", "0123456789abcdef.writing", ".lock")))
    assert names(tmp_path) == []


def test_a_taken_name_is_never_opened(tmp_path, monkeypatch):
    """Whoever guessed it all the same, with a file or a link, gets nothing."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".0000000000000000.writing").symlink_to(tmp_path / "victim")
    monkeypatch.setattr(temporary.secrets, "token_hex", lambda size: "0" * 2 * size)
    with pytest.raises(FileExistsError):
        write_bytes(tmp_path / "x", b"new")
    assert (tmp_path / "victim").read_text() == "mine"


def dies_while(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_what_the_dead_left_is_cleared_and_what_the_living_hold_is_not(tmp_path):
    def dies_in_a_file():
        with writing(tmp_path / "x") as stream:
            stream.write(b"half")
            stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def dies_in_a_folder():
        with folder_in(tmp_path) as beside:
            (beside / "a").write_text("b")
            os.kill(os.getpid(), signal.SIGKILL)

    (tmp_path / "x").write_bytes(b"old")
    with writing(tmp_path / "living") as stream, folder_in(tmp_path) as held:
        for dies in (dies_in_a_file, dies_in_a_folder, dies_in_a_file):
            dies_while(dies)
            assert (tmp_path / "x").read_bytes() == b"old"
            assert sum(map(is_temporary, names(tmp_path))) == 3, "two of the living, and the last of the dead"
        write_bytes(tmp_path / "x", b"new")
        assert sum(map(is_temporary, names(tmp_path))) == 2
        stream.write(b"whole")
        (held / "a").write_text("b")
    assert names(tmp_path) == ["living", "x"]
    assert (tmp_path / "living").read_bytes() == b"whole"


def test_writers_side_by_side_do_not_clear_each_other(tmp_path):
    """A stress: six threads, the same name; each write comes through, and readers see nothing half."""
    problems = []

    def write(letter):
        try:
            for i in range(60):
                write_bytes(tmp_path / "x", letter * (1000 + i))
                assert len(set((tmp_path / "x").read_bytes())) == 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(bytes([c]),)) for c in b"abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert names(tmp_path) == ["x"]


def test_new_means_new(tmp_path):
    write_bytes(tmp_path / "x", b"first", new=True)
    with pytest.raises(FileExistsError):
        write_bytes(tmp_path / "x", b"second", new=True)
    assert (tmp_path / "x").read_bytes() == b"first"
    assert names(tmp_path) == ["x"]


def test_new_on_a_disk_without_second_names(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    test_new_means_new(tmp_path)


def test_a_folder_is_named_by_the_first_number_that_is_free_in_the_end(tmp_path):
    def next_name():
        return tmp_path / f"set-{len(names(tmp_path)):03d}"

    def files():
        write_folder(next_name(), [("a", b"somebody else's")])  # while ours is being made
        yield "a", b"ours"

    first = write_numbered(next_name, files())
    assert (first / "a").read_bytes() == b"ours"
    assert not [name for name in names(tmp_path) if is_temporary(name)]


def test_files_that_come_into_a_folder_leave_the_others(tmp_path):
    target = tmp_path / "hub"
    for text in ("one", "two"):
        with filling_folder(target, last="index") as folder:
            (folder / "index").write_text(text)
            (folder / "deep").mkdir()
            (folder / "deep" / "weights").write_text(text)
        (target / ".git").mkdir(exist_ok=True)
    assert names(target) == [".git", "deep", "index"]
    assert (target / "deep" / "weights").read_text() == (target / "index").read_text() == "two"


def test_permissions_are_the_usual_ones(tmp_path):
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "x", b"")
        assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    finally:
        os.umask(before)
