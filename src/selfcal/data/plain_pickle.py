"""Unpickling that admits numpy arrays and plain containers and nothing else, so no code in a file can run."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

ADMITTED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    # how arrays are rebuilt, under its names before and after numpy 2
    ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
}


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ADMITTED[module, name]


def loads(data: bytes) -> Any:
    """Raises pickle.UnpicklingError for anything that is not plain; text of Python 2 comes out as bytes."""
    try:
        return PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a hostile stream can fail anywhere in the machine
        raise pickle.UnpicklingError(str(error) or type(error).__name__) from None
