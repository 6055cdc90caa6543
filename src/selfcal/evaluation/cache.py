"""The user's cache: what was dear to compute and can be computed again. Never trusted: verified at each use."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from selfcal.core.files import reason, write_bytes
from selfcal.core.progress import say

DIGEST = 64  # hexadecimal digits at the beginning of a file, of the SHA-256 of the rest


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfcal"


def remembered(name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors called `name`, from the cache, or made and put there; name them by what they depend on."""
    file = cache_folder() / f"{name}.tensors"
    if file.exists():
        try:
            return _read(file)
        except (OSError, ValueError, SafetensorError) as error:
            say(f"{file} is damaged ({reason(error)}); it is made again")
    tensors = {key: value.contiguous() for key, value in make().items()}
    content = save(tensors)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, hashlib.sha256(content).hexdigest().encode() + content)
    except OSError as error:
        say(f"{file} cannot be written ({reason(error)}), and would be made again next time")
        with suppress(OSError):
            file.unlink(missing_ok=True)
    return tensors


def _read(file: Path) -> dict[str, Tensor]:
    whole = file.read_bytes()
    content = whole[DIGEST:]
    if hashlib.sha256(content).hexdigest().encode() != whole[:DIGEST]:
        raise ValueError("its SHA-256 is not the one it was written with")
    tensors: dict[str, Tensor] = load(content)
    return tensors
