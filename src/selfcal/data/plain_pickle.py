"""Unpickling that admits arrays of plain numbers and plain containers and nothing else: no code in a file can run.

Nothing of numpy is called while a stream is read, since its own constructors take addresses and objects
from whoever calls them. Stand-ins note what the stream says of an array; the array is made afterwards,
from bytes whose number has been checked.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

NUMBERS = ("b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")


class NotPlain(pickle.UnpicklingError):
    """The stream asks for something that is never loaded."""


class Kind:
    """Stands for numpy.dtype: the name of a plain number."""

    def __init__(self, code: Any, *flags: Any) -> None:
        name = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if name not in NUMBERS:
            raise NotPlain(f"it asks for an array of {name!r}")
        self.code, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        _, order, *parts = state[:5]
        order = order.decode("ascii", "replace") if isinstance(order, bytes) else order
        if order not in ("<", ">", "|", "=") or parts != [None, None, None]:
            raise NotPlain("it asks for an array of records")
        self.order = order


class Array:
    """Stands for numpy.ndarray: its shape, its kind of numbers, and their bytes."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, data = state
        if not isinstance(kind, Kind) or not isinstance(data, bytes):
            raise NotPlain("it asks for an array of objects")
        numbers = np.dtype(kind.order + kind.code)
        if not all(isinstance(n, int) and n >= 0 for n in shape) or math.prod(shape) * numbers.itemsize != len(data):
            raise pickle.UnpicklingError(f"{len(data)} bytes are not an array shaped {shape}")
        self.array = np.frombuffer(data, numbers).reshape(shape, order="F" if by_columns else "C")


def reconstruct(*arguments: Any) -> Array:
    """Stands for what numpy rebuilds an array with; shape and contents follow as its state."""
    return Array()


ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "an argument of the above, which nobody may call",
    ("numpy", "dtype"): Kind,
    # under its names before and after numpy 2
    ("numpy.core.multiarray", "_reconstruct"): reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): reconstruct,
}


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise NotPlain(f"it asks for {module}.{name}")
        return ADMITTED[module, name]


def loads(data: bytes) -> dict[Any, Any]:
    """A dictionary of arrays and plain values; text of Python 2 comes out as bytes.

    Raises NotPlain for what is never loaded, and pickle.UnpicklingError for what is damaged.
    """
    try:
        content = PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a hostile stream can fail anywhere in the machine
        raise pickle.UnpicklingError(str(error) or type(error).__name__) from None
    if not isinstance(content, dict):
        raise pickle.UnpicklingError("it is not a dictionary")
    return {key: getattr(value, "array", None) if isinstance(value, Array) else value for key, value in content.items()}
