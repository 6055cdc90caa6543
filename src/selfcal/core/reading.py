"""Files that are read back, as if anybody could have written them: what is in them is known to be right, or it is one
sentence.

JSON       size, then a schema (pydantic): `read_record`
arrays     sizes that headers declare before anything is unpacked, never a pickle: `read_arrays`
tensors    size and structure, numbers that are all there: `read_tensors`

Hashes are checked by who has them: checkpoints, caches and exported pipelines. What a schema cannot say is caught where
the content is used: `as_written`.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from selfcal.core.errors import SelfcalError
from selfcal.core.files import read_json, reason
from selfcal.core.late import Tensor

LARGEST_ARRAYS = 2**33  # bytes of one array once unpacked
LARGEST_TENSORS = 2**38  # bytes of a file of weights
TRIPPED_OVER = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RuntimeError,
    StopIteration,
)


class Record(BaseModel):
    """What a JSON file must hold; keys beyond are left alone, so that files of other versions can still be read."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


def read_record(file: Path, record: type[BaseModel]) -> Any:
    """The file's content as it is, once it is known to hold such a record."""
    return checked(read_json(file), record, file)


def checked(content: Any, record: type[BaseModel], file: Path) -> Any:
    """The same, of something that was read from the file."""
    try:
        record.model_validate(content)
    except (ValidationError, RecursionError) as error:
        raise SelfcalError(f"{file} cannot be read: {first_problem(error)}") from None
    return content


def read_if_there(file: Path, record: type[BaseModel]) -> Any | None:
    return read_record(file, record) if file.exists() else None


def first_problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "it is nested too deeply"
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg'].lower()}".lstrip(":. ")


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """Around the reading of a file: what is wrong with it is followed by what to do."""
    try:
        yield
    except SelfcalError as problem:
        raise SelfcalError(f"{problem}; {advice}") from None


@contextmanager
def as_written(file: Path, by: str, again: str) -> Iterator[None]:
    """Around the use of a file's content: what trips over it is the file's fault, not the program's.

    by: the command that writes such files. again: what to do.
    """
    try:
        yield
    except SelfcalError:
        raise
    except Exception as error:
        if not isinstance(error, TRIPPED_OVER) and not type(error).__module__.startswith("jinja2."):
            raise
        hint = f"{type(error).__name__}: {error}".splitlines()[0][:120]
        raise SelfcalError(f"{file} is not as `{by}` writes it ({hint}); {again}") from None


# --- arrays -----------------------------------------------------------------------------------------


def check_size(shape: tuple[int, ...], where: str, itemsize: int = 4) -> None:
    """Before anything is allocated for it. itemsize: bytes of a number; images of bytes stay so, all else becomes
    float32."""
    wanted = math.prod(shape) * itemsize
    if wanted > LARGEST_ARRAYS:
        raise SelfcalError(
            f"{where} unpacks to {wanted / 2**30:,.0f} GiB ({' × '.join(map(str, shape))}); "
            f"at most {LARGEST_ARRAYS >> 30} GiB are read"
        )


def read_arrays(path: Path, known: Collection[str] | None = None, needed: str | None = None) -> dict[str, np.ndarray]:
    """The arrays we know by name, or all. Sizes are those that the headers declare, checked before unpacking."""
    if path.is_file() and not zipfile.is_zipfile(path):
        raise SelfcalError(f"{path} cannot be read as an .npz archive: it is not one")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {e.filename.removesuffix(".npy"): e for e in archive.infolist()}
            if needed is not None and needed not in entries:
                holds = ", ".join(sorted(entries)[:20]) or "nothing"
                raise SelfcalError(f"{path} has no array {needed!r}; it holds {holds}")
            return {name: _array(archive, e, path) for name, e in entries.items() if known is None or name in known}
    except SelfcalError:
        raise
    except FileNotFoundError:
        raise SelfcalError(f"the file {path} does not exist") from None
    except Exception as error:  # zipfile, zlib and numpy raise whatever a broken file makes them trip over
        raise SelfcalError(f"{path} cannot be read as an .npz archive: {str(error) or type(error).__name__}") from None


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> np.ndarray:
    where = f"{path}: {entry.filename.removesuffix('.npy')}"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SelfcalError(f"{where} is compressed in a way that numpy does not use; save it with numpy.savez")
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in header:
            raise SelfcalError(f"{where} is in version {version} of numpy's format; save plain arrays")
        shape, _, dtype = header[version](stream)
        if dtype.hasobject:
            raise SelfcalError(
                f"{path} holds pickled objects, which can run code and are never loaded; "
                "save plain number or string arrays instead"
            )
        check_size(shape, where, 1 if dtype == np.uint8 and len(shape) > 2 else max(4, dtype.itemsize))
        if stream.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
            raise SelfcalError(f"{where} declares {shape} of {dtype}, which is not what it holds")
    with archive.open(entry) as stream:
        values: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
    return values


# --- tensors ----------------------------------------------------------------------------------------


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Of a safetensors file. Hashes and shapes are for the caller to check."""
    try:
        size = file.stat().st_size
        if size > LARGEST_TENSORS:
            raise SelfcalError(f"{file} holds {size / 2**30:,.0f} GiB, far more than weights that can be used here")
        return unpacked(file.read_bytes())
    except OSError as error:
        raise SelfcalError(f"{file} cannot be read: {reason(error)}") from None
    except ValueError as error:
        raise SelfcalError(f"{file} is damaged: {error}") from None


def unpacked(content: bytes) -> dict[str, Tensor]:
    """The bytes of a safetensors file, or a ValueError in words."""
    from safetensors import SafetensorError
    from safetensors import torch as safetensors

    try:
        tensors: dict[str, Tensor] = safetensors.load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError, AttributeError) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    return tensors
