"""Whether a folder is still sound after something happened to a command in it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from safetensors.numpy import load

from selfcal.core.temporary import is_temporary
from selfcal.training import checkpoints

if TYPE_CHECKING:
    from fates import Command

LOST, HALF, BITS, OTHER = "lost", "half", "bits", "other"
Tree = dict[str, bytes]


def tree(folder: Path) -> Tree:
    """Every file that counts, by its name: no locks, and nothing that is not whole yet."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if not hidden(f)]
        for name in names:
            if not hidden(name) and not name.endswith(".lock"):
                path = Path(place, name)
                found[path.relative_to(folder).as_posix()] = plain(path.read_bytes(), path)
    return found


def hidden(name: str) -> bool:
    return is_temporary(name) or name.startswith(".removing-")


def plain(content: bytes, path: Path) -> bytes:
    """Without what depends on the place or the number of tries."""
    if path.name == "compare.json":
        content = re.sub(rb'"invocations": \[.*\]', b"", content, flags=re.DOTALL)
    if path.suffix in (".json", ".html", ".md", ".csv", ".tex"):
        content = re.sub(rb"/[^\"<\s]*/(workspace|after|\d+-[A-Z]+)\b", b"HERE", content)
        content = re.sub(rb"\d+ invocations?|in \d+ sittings?", b"", content)
    return content


def leftovers(folder: Path) -> list[str]:
    return [str(p.relative_to(folder)) for p in folder.rglob(".*") if hidden(p.name)]


class Judge:
    """What was there before, and what the command makes of it when nothing happens."""

    def __init__(self, command: Command, before: Tree, after: Tree) -> None:
        self.command, self.before, self.after = command, before, after
        self.came_through: set[str] = set()  # states from which the command was seen to come through

    def verdict(self, folder: Path, fate: str, code: int, said: Path) -> list[tuple[str, str]]:
        now, words = tree(folder), said.read_text("utf-8", "replace")
        found = [*self.lost(now), *self.halves(folder, now), *self.untrue(folder, now, fate, code, words)]
        alike = sorted((name, b"" if name in self.command.clocked else content) for name, content in now.items())
        state = hashlib.sha256(repr((alike, leftovers_by_folder(folder))).encode()).hexdigest()
        if not found and state not in self.came_through and not self.command.is_done(folder):
            found = self.again(folder, said)
            if not found:
                self.came_through.add(state)
        return found

    def lost(self, now: Tree) -> Iterator[tuple[str, str]]:
        for name, content in self.before.items():
            if name in self.after and name not in now:
                yield LOST, f"{name} is gone"
            elif name in now and name in self.after and now[name] != content and is_cut(now[name], content):
                yield LOST, f"{name} is cut short"

    def halves(self, folder: Path, now: Tree) -> Iterator[tuple[str, str]]:
        for name, content in now.items():
            if content in (self.before.get(name), self.after.get(name)):
                continue
            if name in self.command.clocked and content.rstrip().endswith(b"</html>"):
                continue
            try:
                problem = trouble(folder / name, content)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                yield HALF, f"{name}: {problem}"

    def untrue(self, folder: Path, now: Tree, fate: str, code: int, words: str) -> Iterator[tuple[str, str]]:
        """What was said, and the exit code."""
        allowed = {"SIGKILL": (-9,), "SIGINT": (130, 0), "SIGTERM": (130, 0), "ENOSPC": (2, 0)}[fate]
        if code not in allowed or "Traceback" in words:
            yield OTHER, f"exit code {code}; said: {words[-1500:]}"
            return
        if code == 0 and self.lasting(now) != self.lasting(self.after):
            yield OTHER, f"exit code 0, and not everything is there; said: {words[-600:]}"
        if code == 2 and "No space left on device" not in words:
            yield OTHER, f"a full disk is not told: {words[-600:]}"
        if code == 130:
            if self.command.continues != ("the same command continues" in words):
                yield OTHER, f"an untrue promise: {words[-600:]}"
            for name in re.findall(r"interrupted; (\S+) was not written", words):
                if any(n == name or n.startswith(f"{name}/") for n in now):
                    yield OTHER, f"{name} is there: {words[-600:]}"
            for name in re.findall(r"interrupted, but (\S+) is written and whole", words):
                if not (folder / name).exists():
                    yield OTHER, f"{name} is not there: {words[-600:]}"
        if code == 2 and leftovers(folder):
            yield OTHER, f"still in the way on a full disk: {leftovers(folder)}"

    def lasting(self, found: Tree) -> Tree:
        """Without the cache, and without what depends on the clock."""
        return {n: b"" if n in self.command.clocked else c for n, c in found.items() if not n.startswith("cache/")}

    def again(self, folder: Path, said: Path) -> list[tuple[str, str]]:
        """The same command in a process of its own: it comes through, with the same bits, and clears up."""
        from fates import _child, _do

        code = _child(lambda: _do(self.command.work, folder), said)
        if code:
            return [(OTHER, f"given again, exit code {code}; said: {said.read_text('utf-8', 'replace')[-1500:]}")]
        now = tree(folder)
        found = [(BITS, f"{name} is missing") for name in self.after if name not in now]
        found += [(BITS, f"{name} should not be there") for name in now if name not in self.after]
        found += [
            (BITS, f"{n} differs")
            for n in now
            if n in self.after and n not in self.command.clocked and now[n] != self.after[n]
        ]
        return found + [(OTHER, f"{name} was not cleared") for name in leftovers(folder)]


def leftovers_by_folder(folder: Path) -> list[str]:
    return sorted({str(Path(name).parent) for name in leftovers(folder)})


def is_cut(content: bytes, whole: bytes) -> bool:
    return len(content) < len(whole) and whole.startswith(content)


def trouble(path: Path, content: bytes) -> str:
    """Of a file that is neither the old nor the new one: is it at least something whole, on the way between them?"""
    for parent in path.parents:
        if re.fullmatch(r"step-\d+", parent.name):
            checkpoints.verify(parent)
            return ""
    if path.name == "log.jsonl":
        for line in content.split(b"\n")[:-1]:
            json.loads(line)
        return ""
    if path.suffix == ".json":
        json.loads(path.read_bytes())
    elif path.suffix == ".npz":
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for name in arrays.files:
                arrays[name]
    elif path.suffix == ".png":
        Image.open(io.BytesIO(content)).load()
    elif path.suffix == ".safetensors":
        load(content)
    elif path.suffix == ".tensors":
        assert hashlib.sha256(content[64:]).hexdigest().encode() == content[:64]
    else:
        return f"{len(content)} bytes, neither the old ones nor the new ones"
    return ""
