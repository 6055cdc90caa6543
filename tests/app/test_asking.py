"""An image that somebody brings: read distrustfully, shown to the guide, over σ."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from selfcal.app.asking import LARGEST_UPLOAD, curve, over_noise, ranked, same_image, uploaded
from selfcal.app.pictures import opinion
from selfcal.core.errors import SelfcalError


def test_a_digit_comes_in_as_the_networks_know_it(guided, tmp_path):
    x = guided.data.x[7:8]
    pixels = ((x[0, 0] + 1) * 127.5).round().byte().numpy()
    Image.fromarray(pixels).convert("RGB").save(tmp_path / "digit.png")
    read = uploaded(tmp_path / "digit.png", guided)
    assert read.shape == (1, 1, 8, 8)
    assert torch.allclose(read, x, atol=1.01 / 255)
    assert same_image(read, guided.data.x) == 7
    assert same_image(-read, guided.data.x) is None
    assert torch.allclose(guided.predict_proba(read), guided.predict_proba(x), atol=0.02)


def test_any_size_is_cut_to_the_middle_square(guided, tmp_path):
    values = np.zeros((30, 50), dtype=np.uint8)
    values[:, 10:40] = 255
    Image.fromarray(values).save(tmp_path / "wide.png")
    assert uploaded(tmp_path / "wide.png", guided).mean() > 0.95


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"<svg onload=alert(1)>", "none of PNG"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "not an image that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "none of PNG"),
        (b"\0" * (LARGEST_UPLOAD + 1), "10.0 MiB; at most 10"),
    ],
)
def test_what_is_no_image_is_refused_in_words(guided, tmp_path, content, words):
    file = tmp_path / "upload.png"
    file.write_bytes(content)
    with pytest.raises(SelfcalError, match=words):
        uploaded(file, guided)


def test_a_bomb_is_not_unpacked(guided, tmp_path):
    """Few bytes that promise 100,000 × 100,000 pixels."""
    import struct
    import zlib

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0))
    (tmp_path / "bomb.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    )
    with pytest.raises(SelfcalError, match="pixels"):
        uploaded(tmp_path / "bomb.png", guided)
    with pytest.raises(SelfcalError, match="not there any more"):
        uploaded(tmp_path / "gone.png", guided)


def test_probabilities_over_noise(guided):
    sigmas, p = over_noise(guided, guided.data.x[:1])
    assert sigmas == sorted(sigmas)
    assert sigmas[0] == pytest.approx(guided.noise.sigma_min)
    assert sigmas[-1] == pytest.approx(guided.noise.sigma_max)
    assert torch.allclose(p.sum(1), torch.ones(len(sigmas), dtype=p.dtype), atol=1e-5)
    assert ranked(guided, torch.full((1, 1, 8, 8), 0.5)), "a bright image is no mistake"
    best = ranked(guided, guided.data.x[:1])
    assert best == sorted(best, key=lambda pair: -pair[1])
    assert best[0][0] == guided.predict(guided.data.x[:1])[0]


def test_names_cannot_become_markup(guided):
    from dataclasses import replace

    evil = ["<img src=x onerror=alert(1)>", "<script>alert(2)</script>", *"cdefghij"]
    config = guided.config | {"data": guided.config["data"] | {"classes": evil}}
    run = replace(guided, directory=replace(guided.directory, config=config))
    text = opinion(run, guided.data.x[:1]) + curve([0.1, 1.0], torch.full((2, 10), 0.1), evil)
    assert "<script" not in text
    assert "onerror=alert(1)>" not in text
    assert "&lt;img src=x" in text


def test_without_a_guide_there_is_no_opinion(told):
    with pytest.raises(SelfcalError, match="no guide to ask"):
        over_noise(told, told.data.x[:1])
