"""What users hand to a classifier, as a batch in the data's units: pixels, pictures, arrays, tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selfcal.core.errors import SelfcalError

Shape = tuple[int, ...]


def as_examples(given: Any, shape: Shape, clean: bool = True) -> Tensor:
    """(B, *shape) floats; images in [−1, 1], from uint8 as from pictures.

    One example counts as a batch of one; images may have their channels last, grey ones none. clean: without noise,
    so that images outside [−1, 1], or as if they spanned [0, 1], are a mistake: they are refused, not guessed at.
    """
    values = stacked(given, shape)
    if values.dtype == torch.bool or values.is_complex():
        raise SelfcalError(f"inputs have type {str(values.dtype).removeprefix('torch.')}; numbers are expected")
    whole = not values.is_floating_point()
    x = arranged(values, shape)
    if len(shape) != 3:
        return x.float()
    if whole:
        low, high = (int(x.min()), int(x.max())) if x.numel() else (0, 0)
        if low < 0 or high > 255:
            raise SelfcalError(f"inputs are whole numbers from {low} to {high}; pixels go from 0 to 255")
        return x.float() / 127.5 - 1
    if clean and x.numel():
        check_span(x)
    return x.float()


def check_span(x: Tensor) -> None:
    low, high = float(x.min()), float(x.max())
    if not (low >= -1.0001 and high <= 1.0001):
        raise SelfcalError(
            f"inputs span [{low:.3g}, {high:.3g}]; images lie in [−1, 1], or are uint8. Inputs with noise: give sigma"
        )
    if low >= 0 and high > 0 and low < high:
        raise SelfcalError("inputs have no negative value, as if they spanned [0, 1]; give 2x − 1, or uint8")


def stacked(given: Any, shape: Shape) -> Tensor:
    """Whatever was given as one tensor."""
    given = getattr(given, "x", given)  # samples
    if isinstance(given, Image.Image):
        given = [given]
    if isinstance(given, Tensor):
        return given.detach().cpu()
    if isinstance(given, Sequence) and len(given) and isinstance(given[0], Image.Image):
        return torch.stack([from_picture(image, shape) for image in given])
    if isinstance(given, Sequence) and len(given) and isinstance(given[0], Tensor):
        given = [part.detach().cpu().numpy() for part in given]
    try:
        return torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError, RuntimeError):
        raise SelfcalError(
            f"a {type(given).__name__} is no batch of examples; give an array, a tensor, or pictures of one size"
        ) from None


def from_picture(image: Any, shape: Shape) -> Tensor:
    """(C, H, W) bytes, grey or in colour as the data is."""
    if not isinstance(image, Image.Image):
        raise SelfcalError(f"pictures and a {type(image).__name__} are mixed; give one kind")
    if len(shape) != 3:
        raise SelfcalError(f"a picture was given, but examples are points shaped {shape}")
    pixels = np.asarray(image.convert("L" if shape[0] == 1 else "RGB"))
    return torch.tensor(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))  # a copy: PIL's is read-only


def arranged(values: Tensor, shape: Shape) -> Tensor:
    """Channels first, and a batch."""
    found = tuple(values.shape)
    last = (*shape[1:], shape[0]) if len(shape) == 3 else shape
    if found[1:] == shape and values.ndim == len(shape) + 1:
        return values
    if found == shape:
        return values[None]
    if len(shape) == 3:
        if found[1:] == last:
            return values.movedim(-1, 1)
        if found == last:
            return values.movedim(-1, 0)[None]
        if shape[0] == 1 and found[1:] == shape[1:]:
            return values[:, None]
        if shape[0] == 1 and found == shape[1:]:
            return values[None, None]
    if values.numel() == 0 and found[:1] == (0,):
        return values.reshape(0, *shape)
    raise SelfcalError(f"inputs are shaped {found}; expected (B, {', '.join(map(str, shape))})")
