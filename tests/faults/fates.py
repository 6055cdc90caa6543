"""What can happen to a command, at every change that it makes to the disk.

A command runs once, in a folder of its own and with nothing but relative paths. Right before each change (a file opened
to be written, half of its content, a rename, a removal …) the folder is copied, and a twin of the whole process, moved
into the copy, meets its fate there: SIGKILL, Ctrl-C, SIGTERM, or a disk that is full from now on. The copy is then
judged, and the command given again in it. One run of a command so costs as many forks as it has changes, not as many
runs.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import judging
from selfcal.core import files, temporary

KILL, CTRL_C, TERM, FULL = "SIGKILL", "SIGINT", "SIGTERM", "ENOSPC"
SIGNALS = {KILL: signal.SIGKILL, CTRL_C: signal.SIGINT, TERM: signal.SIGTERM}
REMOVALS = {"os.rename", "os.remove", "os.rmdir", "os.truncate"}
GROWTH = {"os.mkdir", "os.link", "os.symlink"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
PATIENCE = 120  # seconds until a twin counts as hanging


@dataclass(frozen=True)
class Command:
    """What is done in a folder that holds `needs`; which fates it meets; and when it need not be done again."""

    name: str
    work: Callable[[], None]  # ends, or raises SystemExit as the command line does
    needs: Sequence[str] = ()
    fates: Sequence[str] = (KILL, CTRL_C, TERM, FULL)
    continues: bool = False  # what it promises after Ctrl-C
    is_done: Callable[[Path], bool] = lambda folder: False
    clocked: Sequence[str] = ()  # files that depend on the clock: whole, but with other bits each time


@dataclass
class Tally:
    """What was done, and what went wrong."""

    moments: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)  # lost, half, bits, other
    said: list[str] = field(default_factory=list)

    def write(self, file: Path) -> None:
        file.write_text(json.dumps([self.moments, self.fates, self.wrong, self.said]))

    @classmethod
    def read(cls, file: Path) -> Tally:
        moments, met, wrong, said = json.loads(file.read_text())
        return cls(moments, Counter(met), Counter(wrong), said)


def meet_fates(command: Command, workspace: Path, scratch: Path, moments: int | None = None) -> Tally:
    """First without any, to see what comes of it; then with. moments: about so many of them, spread evenly."""
    after = scratch / "after"
    shutil.copytree(workspace, after, symlinks=True)
    left_alone = _played(Play(command, after, scratch, None, sys.maxsize))
    judge = judging.Judge(command, judging.tree(workspace), judging.tree(after))
    shutil.rmtree(after)
    return _played(Play(command, workspace, scratch, judge, -(-left_alone.moments // (moments or sys.maxsize))))


def _played(play: Play) -> Tally:
    """In a child of this warm process, whose hooks go with it."""
    result, said = play.scratch / "tally.json", play.scratch / "said"
    code = _child(lambda: play.run(result), said)
    assert code == 0, said.read_text()
    return Tally.read(result)


def _child(work: Callable[[], None], said: Path) -> int:
    """Its exit code; what it prints goes into a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _print_into(said)
        _end(work)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end(work: Callable[[], None]) -> None:
    code = 1
    try:
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _print_into(said: Path) -> None:
    handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(handle, number)
    os.close(handle)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False, encoding="utf-8") for number in (1, 2))  # noqa: SIM115


def _do(work: Callable[[], None], folder: Path) -> None:
    os.chdir(folder)
    work()


class Play:
    """The process that runs the command and lets its twins die."""

    def __init__(
        self, command: Command, workspace: Path, scratch: Path, judge: judging.Judge | None, every: int
    ) -> None:
        self.command, self.workspace, self.scratch, self.judge = command, workspace, scratch, judge
        self.every, self.tally = every, Tally()
        self.watching, self.full, self.is_twin = False, False, False

    def run(self, result: Path) -> None:
        sys.addaudithook(self.hook)
        self.tear_writes()
        self.watching = True
        code = 0
        try:
            _do(self.command.work, self.workspace)
        except SystemExit as stop:
            code = stop.code or 0
        if self.is_twin:
            sys.exit(code)
        assert not code, "without a fault the command comes through"
        self.watching = False
        self.tally.write(result)

    def hook(self, event: str, arguments: tuple) -> None:
        if not (self.watching or self.full):
            return
        if (
            event == "open"
            and not isinstance(arguments[0], int)
            and arguments[2] & WRITES
            and self.is_ours(arguments[0])
        ):
            self.moment("grow" if arguments[2] & os.O_CREAT else "change", arguments[0])
        elif event in GROWTH and self.is_ours(arguments[0]):
            self.moment("grow", arguments[0])
        elif event in REMOVALS and self.is_ours(arguments[0]):
            self.moment("change", arguments[0])

    def is_ours(self, path: object) -> bool:
        text = os.fsdecode(path)
        return not text.startswith(("/dev", "/proc")) and os.path.abspath(text).startswith(os.getcwd())

    def tear_writes(self) -> None:
        """Everything that the durable writer writes comes in two halves, and in between is a moment."""
        play = self

        class Torn(io.FileIO):
            def write(self, content):
                view = memoryview(content).cast("B")
                super().write(view[: len(view) // 2])
                play.moment("grow", "")
                super().write(view[len(view) // 2 :])
                return len(view)

        def in_place(path, content):
            with Torn(path, "x") as stream:
                stream.write(content)

        def append(path, line):
            with Torn(path, "a") as stream:
                stream.write(line.encode() + b"\n")

        temporary._stream = lambda handle: io.BufferedRandom(Torn(handle, "r+"), 2**12)
        for module in [m for name, m in sys.modules.items() if name.startswith("selfcal") and m is not None]:
            for name, real, torn in (
                ("write_in_place", files.write_in_place, in_place),
                ("append_line", files.append_line, append),
            ):
                if getattr(module, name, None) is real and module is not files:
                    setattr(module, name, torn)
        files.write_in_place, files.append_line = in_place, append

    def moment(self, kind: str, path: object) -> None:
        if self.full and kind == "grow":
            raise OSError(28, "No space left on device", os.fsdecode(path) if path else None)
        if not self.watching:
            return
        self.tally.moments += 1
        if self.judge is None or (self.tally.moments - 1) % self.every != self.every // 2:
            return
        self.watching = False
        turn = (CTRL_C, TERM)[self.tally.moments % 2]  # one handler serves both: they take turns
        for fate in [f for f in self.command.fates if f not in (CTRL_C, TERM) or f == turn]:
            if fate != FULL or (kind == "grow" and not is_locking()):
                self.meet(fate)
                if self.is_twin:
                    if fate == FULL:
                        raise OSError(28, "No space left on device", os.fsdecode(path) if path else None)
                    return
        self.watching = True

    def meet(self, fate: str) -> None:
        copy = self.scratch / f"{self.tally.moments}-{fate}"
        shutil.copytree(self.workspace, copy, symlinks=True)
        said = copy.with_suffix(".said")
        sys.stdout.flush()
        sys.stderr.flush()
        twin = os.fork()
        if twin == 0:
            self.is_twin = True
            _print_into(said)
            try:
                move_into(copy, self.workspace)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(99)  # the twin was not made; that is no fate of the command
            signal.alarm(PATIENCE)
            self.full = fate == FULL
            if fate in SIGNALS:
                os.kill(os.getpid(), SIGNALS[fate])
            return
        code = os.waitstatus_to_exitcode(os.waitpid(twin, 0)[1])
        self.tally.fates[fate] += 1
        for kind, words in self.judge.verdict(copy, fate, code, said):
            self.tally.wrong[kind] += 1
            self.tally.said.append(f"{self.command.name}, {fate} at change {self.tally.moments}: {kind}: {words}")
        shutil.rmtree(copy)
        said.unlink()


def is_locking() -> bool:
    """Inside the library of locks, which notices that it was forked and will not go on."""
    frame = sys._getframe()
    while frame is not None:
        if "filelock" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def move_into(copy: Path, workspace: Path) -> None:
    """What is open there is open here; the rest of the process knows only relative paths."""
    for name in os.listdir("/proc/self/fd"):
        try:
            place = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not place.startswith(f"{workspace}/"):
            continue
        here, handle = str(copy) + place.removeprefix(str(workspace)), int(name)
        how = fcntl.fcntl(handle, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
        new = os.open(here, how)
        if os.path.isfile(here):
            os.lseek(new, os.lseek(handle, 0, os.SEEK_CUR), os.SEEK_SET)
        fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.dup2(new, handle, inheritable=False)  # the lock goes with it
        os.close(new)
    os.chdir(copy)
