"""Tensors out of files that anybody could have written: real numbers that are all there, and nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError


def read_pickled(path: Path) -> Any:
    """By PyTorch's reader of plain tensors and containers: no other object is ever made."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd pickles; what matters is whether it loads
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged or hostile file can fail anywhere in the reader
        raise SelfcalError(
            f"{path} is damaged, or is not a checkpoint of plain tensors, and nothing else is ever loaded"
        ) from None


def held(tensor: Any, name: str, path: Path) -> Tensor:
    """Real numbers that are all in the file: a view of one number can claim to be any size."""
    if not isinstance(tensor, Tensor) or tensor.is_meta or tensor.layout != torch.strided:
        raise SelfcalError(f"{path} holds no numbers for {name}")
    if not tensor.is_floating_point():
        raise SelfcalError(f"{path} holds {str(tensor.dtype).removeprefix('torch.')} numbers in {name}, not real ones")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise SelfcalError(f"{path} claims more numbers for {name} than it holds")
    return tensor
