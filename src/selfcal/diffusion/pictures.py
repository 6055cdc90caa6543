"""Grids of images with the names of their classes, and images as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

RED = (214, 40, 40)
INK = (32, 32, 32)
WIDE = 1024  # pixels: a row of images is wrapped before it gets wider
SIDE = 64  # pixels to which smaller images are enlarged
MOST = 1024  # images in one grid; a caption says where there are more
GAP = 3
LETTERS = 14  # pixels: the height of a caption's font


def pixels(images: np.ndarray) -> np.ndarray:
    """[−1, 1] -> bytes."""
    found: np.ndarray = ((np.clip(images, -1, 1) + 1) * 127.5).round().astype(np.uint8)
    return found


def grid(images: np.ndarray, enlarge: int = 4, gap: int = GAP, frames: np.ndarray | None = None) -> Image.Image:
    """(rows, columns, C, H, W) in [−1, 1] -> one picture, pixels enlarged without smoothing.

    frames (rows, columns): whether an image gets a red one.
    """
    rows, columns, _, height, width = images.shape
    enlarged = pixels(images).repeat(enlarge, -1).repeat(enlarge, -2)
    height, width = height * enlarge + gap, width * enlarge + gap
    canvas = np.full((rows * height + gap, columns * width + gap, 3), 255, dtype=np.uint8)
    for r in range(rows):
        for c in range(columns):
            top, left = gap + r * height, gap + c * width
            if frames is not None and frames[r, c]:
                canvas[top - gap : top + height, left - gap : left + width] = RED
            canvas[top : top + height - gap, left : left + width - gap] = enlarged[r, c].transpose(1, 2, 0)
    return Image.fromarray(canvas)


@dataclass(frozen=True)
class Block:
    """The images of one class, wrapped, with its name above them."""

    caption: str
    picture: Image.Image

    @property
    def size(self) -> tuple[int, int]:
        return self.picture.width, self.picture.height + LETTERS + 2 * GAP


def shown_of_each(classes: int, most: int = MOST) -> int:
    """Images of each of so many classes, in one grid."""
    return max(1, most // classes)


def captioned_grid(
    x: np.ndarray, y: np.ndarray, classes: Sequence[str], most: int = MOST, counts: Sequence[int] | None = None
) -> Image.Image:
    """Images (N, C, H, W) in [−1, 1], those of a class together below its name, in rows that wrap.

    The first ones of each class, not picked; classes with few images stand beside each other. counts: how many there
    are of each class, where x holds but the first ones.
    """
    present = np.unique(y).tolist()
    each = shown_of_each(len(present), most)
    enlarge = max(1, SIDE // x.shape[-1])
    columns = max(1, (WIDE - GAP) // (x.shape[-1] * enlarge + GAP))
    blocks = []
    for c in present:
        images = x[y == c]
        many = len(images) if counts is None else counts[c]
        name = classes[c] + (f" (the first {each} of {many})" if many > each else "")
        blocks.append(Block(name, grid(wrapped(images[:each], columns), enlarge)))
    return beside_each_other(blocks)


def wrapped(images: np.ndarray, columns: int) -> np.ndarray:
    """(N, C, H, W) -> (rows, columns, C, H, W), white where there is none."""
    columns = min(columns, len(images))
    white = np.ones((-len(images) % columns, *images.shape[1:]), dtype=images.dtype)
    return np.concatenate([images, white]).reshape(-1, columns, *images.shape[1:])


def beside_each_other(blocks: Sequence[Block]) -> Image.Image:
    """From left to right as many as fit, then below."""
    places, left, top, lowest, widest = [], 0, 0, 0, 0
    for block in blocks:
        width, height = block.size
        if left and left + width > WIDE:
            left, top = 0, lowest
        places.append((left, top))
        left += width + 2 * GAP
        lowest, widest = max(lowest, top + height), max(widest, left - 2 * GAP)
    canvas = Image.new("RGB", (widest, lowest + GAP), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(LETTERS)
    for block, (x, y) in zip(blocks, places, strict=True):
        name = shortened(block.caption, block.picture.width - GAP, font)
        draw.text((x + GAP, y + GAP), name, fill=INK, font=font)
        canvas.paste(block.picture, (x, y + LETTERS + 2 * GAP))
    return canvas


def shortened(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """As much of it as fits into so many pixels."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)[:200]
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"


def png(image: Image.Image, optimize: bool = True) -> bytes:
    """optimize: as small as can be; without it quickly, for a picture that is replaced at once."""
    stream = io.BytesIO()
    image.save(stream, format="PNG", **({"optimize": True} if optimize else {"compress_level": 1}))
    return stream.getvalue()
