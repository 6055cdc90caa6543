"""Files as people have them, for the tables of cases: images of one plain colour, odd in one way each."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

RED, BLUE, WHITE, BLACK = (254, 0, 0), (0, 0, 254), (255, 255, 255), (0, 0, 0)


def saved(image, form="PNG", **more):
    stream = io.BytesIO()
    image.save(stream, form, **more)
    return stream.getvalue()


def plain(colour=RED, size=(4, 4), form="PNG"):
    """RGB of a colour, grey of a number."""
    return saved(Image.new("L" if isinstance(colour, int) else "RGB", size, colour), form)


def deep(value, size=(4, 4), form="PNG"):
    """16-bit grey."""
    return saved(Image.fromarray(np.full(size[::-1], value, dtype=np.uint16)), form)


def halves(first, second, size=(8, 4)):
    """Left of one colour, right of another."""
    image = Image.new("RGB", size, first)
    image.paste(second, (size[0] // 2, 0, *size))
    return image


def turned(orientation, form="JPEG"):
    """Red left and blue right, with a tag that says how the camera was held."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(halves(RED, BLUE, (16, 8)), form, exif=exif, **({"quality": 100} if form == "JPEG" else {}))


def see_through(mode="RGBA", alpha=0, size=(4, 4)):
    """Red (or black) that is hardly or not there at all."""
    return saved(Image.new(mode, size, (*RED, alpha) if mode == "RGBA" else (0, alpha)))


def with_palette(transparent=None):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, *RED])
    return saved(image, **({} if transparent is None else {"transparency": transparent}))


def broken():
    """Its header is good, its pixels end too early."""
    whole = plain()
    return whole[: whole.index(b"IDAT") + 8]


def put(root, files):
    """{"cat/1.png": bytes or text} below root."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root
