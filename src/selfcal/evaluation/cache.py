"""The user's cache: what was dear to compute and can be computed again. Never trusted: verified at each use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from selfcal.core.files import cache_folder, make_folder, reason, write_bytes
from selfcal.core.progress import say
from selfcal.core.reading import unpacked

DIGEST = 64  # hexadecimal digits at the beginning of a file, of the SHA-256 of the rest


def remembered(name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors called `name`, from the cache, or made and put there; name them by what they depend on."""
    found = kept(name)
    if found is not None:
        return found
    tensors = make()
    keep(name, tensors)
    return tensors


def kept(name: str) -> dict[str, Tensor] | None:
    """What the cache holds under that name, if it is whole."""
    file = file_of(name)
    if not file.exists():
        return None
    try:
        return _read(file)
    except (OSError, ValueError) as error:
        say(f"{file} is damaged ({reason(error)}); it is made again")
        return None


def keep(name: str, tensors: dict[str, Tensor]) -> None:
    """Put them there; a cache that cannot be written stops nothing."""
    file, content = file_of(name), save({key: value.contiguous() for key, value in tensors.items()})
    try:
        make_folder(file.parent, within=file.parent)
        write_bytes(file, hashlib.sha256(content).hexdigest().encode() + content)
    except OSError as error:
        say(f"{file} cannot be written ({reason(error)}), and would be made again next time")


def forget(name: str) -> None:
    with suppress(OSError):
        file_of(name).unlink(missing_ok=True)


def file_of(name: str) -> Path:
    return cache_folder() / f"{name}.tensors"


def _read(file: Path) -> dict[str, Tensor]:
    whole = file.read_bytes()
    content = whole[DIGEST:]
    if hashlib.sha256(content).hexdigest().encode() != whole[:DIGEST]:
        raise ValueError("its SHA-256 is not the one it was written with")
    return unpacked(content)
