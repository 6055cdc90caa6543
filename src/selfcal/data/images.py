"""One image file as upright 8-bit pixels, grey or colour.

Turned as its camera says (EXIF), laid over white where it is transparent, 16 bits scaled to 8; with a
size, its middle square at that size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from selfcal.data.limits import LARGEST_IMAGE

ENDINGS = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N"}
UNREAD = {".heic", ".heif", ".avif", ".jp2", ".jxl", ".svg", ".psd", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw"}
"""Endings of images that are not read: they are spoken of, and never opened."""
ORIENTATION = 0x0112  # the EXIF tag; from 5 on, width and height change places
DRAFT = 2  # a JPEG is decoded at no less than this many times the size asked for, where it can be decoded smaller


class Unreadable(Exception):
    """A file that is no image, or a broken one; says why."""


@dataclass(frozen=True)
class Header:
    """What a file says of its image before it is decoded."""

    width: int
    height: int
    grey: bool
    deep: bool  # 16 bits


def header(file: Path) -> Header:
    with _opened(file) as image:
        width, height = image.size
        if _has_exif(image) and image.getexif().get(ORIENTATION, 1) in range(5, 9):
            width, height = height, width
        return Header(width, height, image.mode in GREY, _is_deep(image))


def pixels(file: Path, grey: bool, size: int | None = None) -> np.ndarray:
    """(C, H, W) of bytes."""
    with _opened(file) as image:
        if size is not None:
            image.draft(None, (DRAFT * size, DRAFT * size))
        image.load()
        turned = ImageOps.exif_transpose(image)
        upright = _plain(_in_bytes(turned) if _is_deep(image) else turned).convert("L" if grey else "RGB")
        values = np.asarray(upright if size is None else middle_square(upright, size), dtype=np.uint8)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def middle_square(image: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle, at size × size; one that has this size is left as it is."""
    if image.size == (size, size):
        return image
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.LANCZOS, box=box, reducing_gap=3.0)


@contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    """Only by the readers of our own endings: Pillow would otherwise also try those that start other programs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of too many pixels, which are counted below, and of odd tags
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > LARGEST_IMAGE:
                    raise Unreadable(f"it has {image.width}×{image.height} pixels, at most {LARGEST_IMAGE:,} are read")
                yield image
    except Unreadable:
        raise
    except Exception as error:  # Pillow's readers raise whatever a broken file makes them trip over
        raise Unreadable(_in_words(error, file)) from None


def _in_words(error: Exception, file: Path) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "it is empty" if file.stat().st_size == 0 else "it is none of " + ", ".join(FORMATS)
    return str(error) or type(error).__name__


def _has_exif(image: Image.Image) -> bool:
    """Without decoding, which Pillow would do to look for EXIF behind the pixels of a PNG."""
    return image.format != "PNG" or bool({"exif", "Raw profile type exif"} & image.info.keys())


def _is_deep(image: Image.Image) -> bool:
    """Older versions of Pillow open 16-bit PNGs in a mode of 32 bits."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")


def _plain(image: Image.Image) -> Image.Image:
    """Of bytes and without transparency: what looks white in a viewer is white."""
    if image.mode in ("I", "F"):
        raise Unreadable("it holds 32-bit numbers, whose black and white nobody knows; save it with 8 or 16 bits")
    if image.has_transparency_data:
        over = image.convert("RGBA")
        over = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over)
        return over.convert("L" if image.mode in GREY else "RGB")
    return image


def _in_bytes(image: Image.Image) -> Image.Image:
    """65535 is white."""
    values = np.asarray(image).astype(np.int64).clip(0, 65535)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))
