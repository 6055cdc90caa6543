"""Checkpoints: a folder per saved step, hashed, written beside and then renamed; nothing is pickled.

    checkpoints/score/step-00008000/{weights,ema,optimizer}.safetensors  state.json  manifest.json

A folder gets its name only when everything in it is on the disk, so a kill at any instant leaves
the one before. What the manifest does not confirm is damaged, and is never loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from selfcal.core import reading
from selfcal.core.errors import SelfcalError
from selfcal.core.files import file_sha256, make_folder, read_json, reason, write_in_place, writing_folder
from selfcal.core.late import Tensor
from selfcal.core.temporary import clear_leftovers

GROUPS = ("weights", "ema", "optimizer")  # always there; terms with a memory add "terms"
MANIFEST, AVERAGE, OPTIMIZER = "manifest.json", "ema.safetensors", "optimizer.safetensors"
Saved = tuple[int, dict[str, dict[str, Tensor]], dict[str, Any]]
"""(step, tensors by group, what state.json says)."""


class Damaged(SelfcalError):
    """A checkpoint that is not what its manifest says."""


def folder_of(run: Path, stage: str) -> Path:
    return run / "checkpoints" / stage


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def steps_saved(folder: Path) -> list[int]:
    """Steps with a finished folder, ascending."""
    names = (re.fullmatch(r"step-([0-9]{8,18})", p.name) for p in folder.glob("step-*"))
    return sorted(int(match[1]) for match in names if match)


# --- writing --------------------------------------------------------------------------------------


def save(folder: Path, step: int, state: Mapping[str, Mapping[str, Tensor]], about: dict[str, Any]) -> Path:
    """Write step's checkpoint into folder: complete, or not at all."""
    files = {f"{group}.safetensors": packed(tensors) for group, tensors in state.items() if tensors or group in GROUPS}
    files["state.json"] = json.dumps({"step": step, **about}, indent=1).encode()
    return _put(folder, step, files)


def share(source: Path, folder: Path, step: int) -> Path:
    """A finished network of another run, once it is known to be good: its files under a second name, not a copy of
    them, where the disk allows it. The optimiser, twice as large as the network, stays behind."""
    verify(source)
    taken = {p.name: p for p in _files(source) if p.name not in (MANIFEST, OPTIMIZER)}
    return _put(folder, step, {OPTIMIZER: packed({}), **taken})


def _put(folder: Path, step: int, files: Mapping[str, bytes | Path]) -> Path:
    """Files by name: their content, or where they are already."""
    final = path_of(make_folder(folder, within=folder.parents[1]), step)
    with writing_folder(final) as beside:
        for name, content in files.items():
            if isinstance(content, Path):
                _link(content, beside / name)
            else:
                write_in_place(beside / name, content)
        hashes = {
            name: file_sha256(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
            for name, content in files.items()
        }
        write_in_place(beside / MANIFEST, _manifest(hashes))  # of what was meant, not of what came to lie there
        if final.exists():
            remove(final)
    return final


def _link(file: Path, to: Path) -> None:
    """No file of a checkpoint is ever written to again, so that two names of it are as good as two files."""
    try:
        os.link(file, to)
    except OSError:  # another disk, or one that knows no links
        write_in_place(to, file.read_bytes())


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """As a safetensors file."""
    from safetensors import torch as safetensors

    content: bytes = safetensors.save({k: v.detach().cpu().contiguous() for k, v in tensors.items()})
    return content


def remove(path: Path) -> None:
    """Renamed first: a kill in between must not leave half a checkpoint under a good name."""
    away = path.with_name(f".removing-{path.name}")
    shutil.rmtree(away, ignore_errors=True)
    path.rename(away)
    shutil.rmtree(away)


def thin_out(folder: Path, keep: int, keep_every: int, scheduled: Callable[[int], bool]) -> None:
    """Leave the newest, the last `keep` scheduled ones, and every `keep_every`-th step for good.

    One written because of a signal is off schedule and goes with the next: an interrupted run ends
    with the same checkpoints as one that was left alone, and rolls back to the same ones.
    """
    steps = steps_saved(folder)
    regular = [s for s in steps if scheduled(s)]
    stay = {*regular[-keep:], *steps[-1:], *(s for s in regular if keep_every and s % keep_every == 0)}
    for step in steps:
        if step not in stay:
            remove(path_of(folder, step))


def tidy(folder: Path) -> None:
    """Remove what a killed process left half written or half removed."""
    clear_leftovers(folder)
    for pattern in (".writing*", ".removing-*"):
        for path in folder.glob(pattern):
            shutil.rmtree(path)


def set_aside_damaged(folder: Path) -> list[str]:
    """Make the newest checkpoint a good one: rename those after it that are damaged, and say so.

    If none is good, nothing is renamed and it is an error: starting anew must be the user's choice.
    """
    problems: dict[Path, str] = {}
    for step in reversed(steps_saved(folder)):
        try:
            verify(path_of(folder, step))
        except Damaged as problem:
            problems[path_of(folder, step)] = str(problem)
            continue
        return [f"{problem}; set aside as {_aside(path).name}" for path, problem in problems.items()]
    if problems:
        raise SelfcalError(
            f"no checkpoint in {folder} is good: {'; '.join(problems.values())}. "
            "Remove that folder to train this network anew"
        )
    return []


def _aside(path: Path) -> Path:
    number = 1
    while (away := path.with_name(f"damaged-{number}-{path.name}")).exists():
        number += 1
    path.rename(away)
    return away


# --- reading --------------------------------------------------------------------------------------


def load_newest(folder: Path) -> Saved | None:
    """The newest checkpoint; None if there is none; an error if it is damaged."""
    steps = steps_saved(folder)
    if not steps:
        return None
    path = path_of(folder, steps[-1])
    about = verify(path)
    present = {p.name for p in _files(path)}
    groups = [*GROUPS, *(["terms"] if "terms.safetensors" in present else [])]
    return steps[-1], {group: read_tensors(path / f"{group}.safetensors") for group in groups}, about


def load_average(folder: Path) -> tuple[int, dict[str, Tensor], str]:
    """(step, averaged weights, their SHA-256) of the newest checkpoint: what is used after training."""
    step, sha256 = average_sha256(folder)
    return step, read_tensors(path_of(folder, step) / AVERAGE), sha256


def average_sha256(folder: Path) -> tuple[int, str]:
    """(step, SHA-256 of the averaged weights) of the newest checkpoint, all of which is as its manifest says."""
    steps = steps_saved(folder)
    if not steps:
        raise SelfcalError(f"{folder} holds no checkpoint yet; run the train command again to continue it")
    path = path_of(folder, steps[-1])
    try:
        verify(path)
    except Damaged as problem:
        raise Damaged(f"{problem}; give the train command again to go back to a good checkpoint") from None
    return steps[-1], file_sha256(path / AVERAGE)


def verify(path: Path) -> dict[str, Any]:
    """Check every file against the manifest; return what state.json says.

    The manifest must be, to the byte, the one that these files would get: then no bit of any file,
    nor of the manifest itself, can have changed.
    """
    try:
        promised = (path / MANIFEST).read_bytes()
        if promised != _manifest(_hashes(path)):
            culprit = _culprit(path, promised)
            how = "it is not as selfcal wrote it" if culprit == MANIFEST else "its SHA-256 differs from the manifest's"
            raise Damaged(f"{path / culprit} is damaged: {how}")
        about: dict[str, Any] = read_json(path / "state.json")
    except OSError as error:
        raise Damaged(
            f"the checkpoint {path} is damaged: {reason(error)} ({Path(error.filename or path).name})"
        ) from None
    except Damaged:
        raise
    except SelfcalError as error:
        raise Damaged(f"the checkpoint {path} is damaged: {error}") from None
    step = about.get("step") if isinstance(about, dict) else None
    if not isinstance(step, int) or path_of(path.parent, step) != path:
        raise Damaged(f"the checkpoint {path} is damaged: its state.json tells of another step")
    if about.get("network", path.parent.name) != path.parent.name:
        raise Damaged(f"the checkpoint {path} is damaged: its state.json tells of another network")
    if missing := [group for group in GROUPS if not (path / f"{group}.safetensors").is_file()]:
        raise Damaged(f"the checkpoint {path} is damaged: it lacks {', '.join(missing)}")
    return about


def read_tensors(file: Path) -> dict[str, Tensor]:
    try:
        return reading.read_tensors(file)
    except SelfcalError as problem:
        raise Damaged(str(problem)) from None


def _files(path: Path) -> Iterable[Path]:
    """Sorted; hidden ones are file managers' own."""
    return sorted(p for p in path.iterdir() if not p.name.startswith("."))


def _hashes(path: Path) -> dict[str, str]:
    return {p.name: file_sha256(p) for p in _files(path) if p.name != MANIFEST}


def _manifest(hashes: Mapping[str, str]) -> bytes:
    return json.dumps(dict(sorted(hashes.items())), indent=1).encode()


def _culprit(path: Path, promised: bytes) -> str:
    """The first file that is not as promised, or else the manifest itself."""
    try:
        said = json.loads(promised)
        return next(name for name, sha256 in _hashes(path).items() if said.get(name, sha256) != sha256)
    except (ValueError, AttributeError, StopIteration, RecursionError):
        return MANIFEST
