"""Checkpoints: a folder per saved step, hashed, written beside and then renamed; nothing is pickled.

    checkpoints/score/step-00008000/{weights,ema,optimizer}.safetensors  state.json  manifest.json

A folder without a valid manifest does not count, so a kill at any instant leaves the previous one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from selfcal.errors import SelfcalError

GROUPS = ("weights", "ema", "optimizer")


def save(folder: Path, step: int, state: Mapping[str, Mapping[str, Tensor]], about: dict[str, Any], keep: int) -> Path:
    """Write step's checkpoint into folder, then drop all but the newest `keep`."""
    final = folder / f"step-{step:08d}"
    beside = folder / f".writing-{step:08d}"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    for group, tensors in state.items():
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, beside / f"{group}.safetensors")
    (beside / "state.json").write_text(json.dumps({"step": step, **about}, indent=1))
    manifest = {p.name: file_sha256(p) for p in sorted(beside.iterdir())}
    (beside / "manifest.json").write_text(json.dumps(manifest, indent=1))
    for path in [*beside.iterdir(), beside]:
        sync(path)
    if final.exists():
        shutil.rmtree(final)
    beside.rename(final)
    sync(folder)
    for old in steps_saved(folder)[:-keep]:
        shutil.rmtree(folder / f"step-{old:08d}")
    return final


def steps_saved(folder: Path) -> list[int]:
    """Steps with a finished folder, ascending."""
    return sorted(int(p.name.removeprefix("step-")) for p in folder.glob("step-*") if p.name[5:].isdigit())


def load_newest(folder: Path) -> tuple[int, dict[str, dict[str, Tensor]], dict[str, Any]] | None:
    """(step, tensors, about) of the newest checkpoint; None if there is none; an error if it is damaged."""
    steps = steps_saved(folder)
    if not steps:
        return None
    path = folder / f"step-{steps[-1]:08d}"
    about = verify(path)
    return steps[-1], {group: load_file(path / f"{group}.safetensors") for group in GROUPS}, about


def load_average(folder: Path) -> tuple[int, dict[str, Tensor], str]:
    """(step, averaged weights, their SHA-256) of the newest checkpoint: what is used after training."""
    steps = steps_saved(folder)
    if not steps:
        raise SelfcalError(f"{folder} holds no checkpoint yet; run the train command again to continue it")
    path = folder / f"step-{steps[-1]:08d}"
    verify(path)
    file = path / "ema.safetensors"
    return steps[-1], load_file(file), file_sha256(file)


def verify(path: Path) -> dict[str, Any]:
    """Check every file against the manifest; return what state.json says."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        for name, expected in manifest.items():
            if file_sha256(path / name) != expected:
                raise SelfcalError(f"{path / name} is damaged: its SHA-256 differs from the manifest's")
        about: dict[str, Any] = json.loads((path / "state.json").read_text())
    except (OSError, ValueError, AttributeError, SafetensorError) as error:
        raise SelfcalError(f"the checkpoint {path} cannot be read: {error}") from None
    return about


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Atomically: readers see the old file or the new one, never half of it."""
    beside = path.with_name(f".{path.name}.writing")
    beside.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sync(beside)
    beside.rename(path)
