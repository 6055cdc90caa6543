"""Folders as people keep them: each is read right, pixels and labels, or refused in a sentence naming all culprits."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from messy import BLACK, BLUE, RED, WHITE, broken, deep, halves, plain, put, saved, see_through, turned, with_palette
from selfcal.core.errors import SelfcalError
from selfcal.data.labels import reveal
from selfcal.data.sources import load_data

A, B = {"a/0.png": plain()}, {"b/0.png": plain(BLUE)}
CMYK = saved(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "TIFF")
FLOATS = saved(Image.fromarray(np.full((4, 4), 0.5, dtype=np.float32)), "TIFF")
WIDE = saved(halves(RED, BLUE, (40, 8)))  # its middle is half red, half blue

READ = {  # name: (files, options, {training file: (class, its first pixel)}, {test file: …}, words of the notes)
    "deeper folders": (
        {"a/2019/may/0.png": plain(), "a/1.png": plain(BLUE), **B},
        {},
        {"a/1.png": ("a", BLUE), "a/2019/may/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        "",
    ),
    "Tiny ImageNet's own layout": (
        {
            "train/n01/images/n01_0.JPEG": plain(WHITE, form="JPEG"),
            "train/n01/n01_boxes.txt": "n01_0.JPEG\t0\t0\t3\t3",
            "train/n02/images/n02_0.JPEG": plain(BLACK, form="JPEG"),
            "val/images/val_0.JPEG": plain(BLACK, form="JPEG"),
            "val/val_annotations.txt": "val_0.JPEG\tn02\t0\t0\t3\t3",
            "test/images/test_0.JPEG": plain(WHITE, form="JPEG"),
            "wnids.txt": "n01\nn02",
        },
        {},
        {"n01/images/n01_0.JPEG": ("n01", WHITE), "n02/images/n02_0.JPEG": ("n02", BLACK)},
        {"val/images/val_0.JPEG": (None, BLACK)},
        "not read, since there is train/: test/",
    ),
    "train, test and unlabeled in any case": (
        {"Train/a/0.png": plain(), "Train/b/0.png": plain(BLUE), "TEST/a/1.png": plain(), "Unlabelled/u.png": plain()},
        {},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE), "Unlabelled/u.png": (None, RED)},
        {"TEST/a/1.png": ("a", RED)},
        "",
    ),
    "Unlabeled/ is no class": (
        {**A, **B, "Unlabeled/deep/u.png": plain(WHITE)},
        {},
        {"Unlabeled/deep/u.png": (None, WHITE), "a/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        "",
    ),
    "test/ among class folders": (
        {**A, **B, "test/a/9.png": plain(), "test/B/9.png": plain(BLUE)},
        {},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {"test/B/9.png": ("b", BLUE), "test/a/9.png": ("a", RED)},
        "",
    ),
    "one grey file first": (
        {"a/0.png": plain(100), "a/1.png": plain(), **B},
        {},
        {"a/0.png": ("a", (100, 100, 100)), "a/1.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        "1 grey files among colour ones are read as colour",
    ),
    "all grey": (
        {"a/0.png": plain(7), "b/0.png": plain(200)},
        {},
        {"a/0.png": ("a", 7), "b/0.png": ("b", 200)},
        {},
        "",
    ),
    "colour test images of grey training images": (
        {"train/a/0.png": plain(7), "train/b/0.png": plain(9), "test/a/1.png": plain(WHITE)},
        {},
        {"a/0.png": ("a", 7), "b/0.png": ("b", 9)},
        {"test/a/1.png": ("a", 255)},
        "1 colour test images are read as grey",
    ),
    "16-bit grey PNG and TIFF": (
        {"a/0.png": deep(65535), "a/1.png": deep(257 * 100), "b/0.tif": deep(257 * 3, form="TIFF")},
        {},
        {"a/0.png": ("a", 255), "a/1.png": ("a", 100), "b/0.tif": ("b", 3)},
        {},
        "",
    ),
    "12 bits in 16": (
        {"a/0.png": deep(4095), "b/0.png": deep(1000)},
        {},
        {"a/0.png": ("a", 16), "b/0.png": ("b", 4)},
        {},
        "the 16-bit images are dark, the brightest value is about 4112 of 65535",
    ),
    "one bit": (
        {"a/0.png": saved(Image.new("1", (4, 4), 1)), "b/0.png": saved(Image.new("1", (4, 4), 0))},
        {},
        {"a/0.png": ("a", 255), "b/0.png": ("b", 0)},
        {},
        "",
    ),
    "turned by a quarter": (
        {"a/0.jpg": turned(6), "b/0.jpg": turned(8)},
        {},
        {"a/0.jpg": ("a", RED), "b/0.jpg": ("b", BLUE)},
        {},
        "",
    ),
    "upside down beside upright": (
        {"a/0.jpg": turned(1), "b/0.jpg": turned(3)},
        {},
        {"a/0.jpg": ("a", RED), "b/0.jpg": ("b", BLUE)},
        {},
        "",
    ),
    "turned WebP and PNG": (
        {"a/0.png": turned(3, "PNG"), "b/0.png": turned(1, "PNG")},
        {},
        {"a/0.png": ("a", BLUE), "b/0.png": ("b", RED)},
        {},
        "",
    ),
    "transparency lies over white": (
        {"a/0.png": see_through(alpha=0), "b/0.png": see_through(alpha=255)},
        {},
        {"a/0.png": ("a", WHITE), "b/0.png": ("b", RED)},
        {},
        "",
    ),
    "transparency of grey stays grey": (
        {"a/0.png": see_through("LA", 0), "b/0.png": see_through("LA", 255)},
        {},
        {"a/0.png": ("a", 255), "b/0.png": ("b", 0)},
        {},
        "",
    ),
    "palettes": (
        {"a/0.png": with_palette(), "b/0.png": with_palette(transparent=1)},
        {},
        {"a/0.png": ("a", RED), "b/0.png": ("b", WHITE)},
        {},
        "",
    ),
    "CMYK": ({"a/0.tif": CMYK, **B}, {}, {"a/0.tif": ("a", (255, 0, 0)), "b/0.png": ("b", BLUE)}, {}, ""),
    "jfif and upper-case endings": (
        {"a/0.jfif": plain(WHITE, form="JPEG"), "b/0.JPE": plain(BLACK, form="JPEG")},
        {},
        {"a/0.jfif": ("a", WHITE), "b/0.JPE": ("b", BLACK)},
        {},
        "",
    ),
    "HEIC and raw files are spoken of": (
        {**A, **B, "a/1.HEIC": "…", "a/2.heic": "…", "b/deep/3.NEF": "…", "b/IMG_7": "…"},
        {},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        "not read: 2 .heic, 1 .nef; save them as JPEG or PNG|names have no ending: IMG_7",
    ),
    "what a Mac leaves behind": (
        {**A, **B, "__MACOSX/a/._0.png": "…", ".DS_Store": "…", "a/._0.png": "…", "a/Thumbs.db": "…"},
        {},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        "",
    ),
    "phone photos of several sizes": (
        {"a/0.png": WIDE, "b/0.png": plain(BLUE, (30, 90)), "b/1.jpg": plain(WHITE, (900, 500), "JPEG")},
        {"size": 8},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE), "b/1.jpg": ("b", WHITE)},
        {},
        "--size 8: of 3 images the middle square, resized",
    ),
    "some smaller than asked for": (
        {"a/0.png": plain(RED, (4, 6)), "b/0.png": plain(BLUE, (16, 16))},
        {"size": 8},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        "1 images are smaller than 8×8 and were enlarged",
    ),
    "broken files skipped": (
        {**A, **B, "a/1.png": broken(), "b/1.png": "no image", "b/2.png": ""},
        {"skip_broken": True},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        r"skipped, since they cannot be read: a/1\.png \(.*\), b/1\.png \(it is none of .*\), b/2\.png \(it is empty\)",
    ),
    "the only colour was in a broken file": (
        {"a/0.png": plain(7), "a/1.png": broken(), "b/0.png": plain(9)},
        {"skip_broken": True},
        {"a/0.png": ("a", 7), "b/0.png": ("b", 9)},
        {},
        "skipped",
    ),
    "classes that differ in case": (
        {"Cat/0.png": plain(), "cat/0.png": plain(BLUE)},
        {},
        {"Cat/0.png": ("Cat", RED), "cat/0.png": ("cat", BLUE)},
        {},
        "",
    ),
    "one folder images/ in between": (
        {"images/a/0.png": plain(), "images/b/0.png": plain(BLUE), "readme.txt": "…"},
        {},
        {"a/0.png": ("a", RED), "b/0.png": ("b", BLUE)},
        {},
        "",
    ),
}


def known(data, names, x, y):
    """{name: (class, first pixel)}."""
    classes = [None if c < 0 else data.classes[c] for c in y.tolist()]
    pixels = ((x[:, :, 0, 0] + 1) * 127.5).round().int().tolist()
    return {n: (c, tuple(p) if len(p) == 3 else p[0]) for n, c, p in zip(names, classes, pixels, strict=True)}


def near(found, wanted):
    """JPEG's red is not quite red."""
    assert list(found) == list(wanted)
    for name, (c, pixel) in wanted.items():
        assert found[name][0] == c, name
        np.testing.assert_allclose(found[name][1], pixel, atol=2 if name.endswith("jpg") else 0, err_msg=name)


@pytest.mark.parametrize("case", READ)
def test_read_right(tmp_path, case):
    files, options, train, test, words = READ[case]
    data = load_data(put(tmp_path / "pile", files), **options)
    near(known(data, data.names, data.x, data.y), train)
    near(known(data, data.files.test, data.x_test, data.y_test), test)
    for part in words.split("|"):
        assert re.search(part, "; ".join(data.notes)), data.notes
    if not words:
        assert not data.notes, "nothing is said of what needs no word"


REFUSED = {  # name: (files, options, what the sentence says)
    "sizes differ": (
        {"a/0.png": plain(), "a/1.png": plain(), "b/0.png": plain(size=(9, 5)), "b/1.png": plain(size=(7, 4))},
        {},
        r"different sizes: a/0\.png and 1 more are 4×4, b/0\.png is 9×5, b/1\.png is 7×4; give --size N.*--size 4,",
    ),
    "sizes of photos differ": (
        {"a/0.png": plain(size=(90, 70)), "b/0.png": plain(size=(70, 90)), "b/1.jpg": "no image"},
        {},
        r"a/0\.png is 90×70, b/0\.png is 70×90.*--size 64, or resize.* Besides, .*b/1\.jpg cannot be read",
    ),
    "broken files": (
        {**A, "a/1.png": broken(), "a/deep/2.png": "", **B, "b/1.png": "no image"},
        {},
        r"3 files of .*: a/1\.png \(.*\), a/deep/2\.png \(it is empty\), b/1\.png \(it is none of .*--skip-broken",
    ),
    "nothing but broken files": (
        {"a/0.png": "", "b/0.png": "no"},
        {"skip_broken": True},
        r"none of the 2 images in .* can be read: a/0\.png \(it is empty\), b/0\.png",
    ),
    "floats": ({"a/0.tif": FLOATS, **B}, {}, r"a/0\.tif cannot be read as an image \(it holds 32-bit numbers"),
    "nothing but HEIC": (
        {"0.heic": "…", "1.HEIC": "…"},
        {},
        r"holds no images .*; not read: 2 \.heic; save them as JPEG",
    ),
    "empty class folders": (
        {**A, **B, "c/notes.txt": "…", "d/0.heic": "…"},
        {},
        r"2 class folders hold no images: .*c, .*d \(1 \.heic\); add some",
    ),
    "test folders that are no classes": (
        {"train/a/0.png": plain(), "train/b/0.png": plain(), "test/c/0.png": plain(), "test/d/0.png": plain()},
        {},
        r"test/c, .*test/d are not among the training classes \(a, b\)",
    ),
    "test/ that may be a class": (
        {**A, **B, "test/0.png": plain()},
        {},
        r"test lies among class folders \(a, b\) and has none in it: if it is a class, rename it",
    ),
    "train/ that may be a class": (
        {"bus/0.png": plain(), "car/0.png": plain(), "train/0.png": plain()},
        {},
        r"train has no class folders, and beside it there are images in bus, car: if train is a class",
    ),
    "train/ twice": ({"train/a/0.png": plain(), "Train/a/0.png": plain()}, {}, "has Train and train; keep the one"),
    "a size of nothing": ({**A, **B}, {"size": 0}, "--size 0: images have from 1 to 4096 pixels"),
    "one class and unlabelled images": (
        {**A, "unlabeled/0.png": plain(), "unlabeled/1.png": plain()},
        {},
        "only the class 'a'; guidance needs at least two: label some of the 2 unlabelled images .* 'not a'",
    ),
    "no labels at all": ({"0.png": plain(), "1.png": plain()}, {}, "has no labels at all; give it class folders"),
    "several tables": (
        {"0.png": plain(), "x.csv": "file,label", "y.csv": "file,label"},
        {},
        r"several tables, x\.csv, y\.csv; say which has the labels",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_a_sentence(tmp_path, case):
    files, options, words = REFUSED[case]
    with pytest.raises(SelfcalError, match=words) as refusal:
        reveal(load_data(put(tmp_path / "pile", files), **options), None, 0)
    assert "\n" not in str(refusal.value)


def test_the_middle_square_is_the_middle_and_smooth(tmp_path):
    data = load_data(put(tmp_path, {"a/0.png": WIDE, "b/0.png": plain(size=(8, 8))}), size=8)
    red, _, blue = data.x[0]
    assert (red[:, :4] > 0.99).all()
    assert (blue[:, 4:] > 0.99).all()
    stripes = np.zeros((64, 64), np.uint8)
    stripes[:, ::2] = 255  # a nearest neighbour would make them black or white
    grey = load_data(put(tmp_path / "s", {"a/0.png": saved(Image.fromarray(stripes)), "b/0.png": plain(0)}), size=8).x[
        0
    ]
    assert grey[:, 1:-1].abs().max() < 0.1


def test_what_was_read_right_before_has_the_hash_it_had(tmp_path):
    """Of runs made by earlier versions, as computed by them."""
    rng = {i: np.random.default_rng(i) for i in range(6)}
    names = [
        "train/b/2.png",
        "train/b/10.png",
        "train/a/x.bmp",
        "train/Unsorted.png",
        "train/unlabeled/q.png",
        "test/a/1.png",
    ]
    for i, name in enumerate(names):
        pixels = rng[i].integers(0, 256, (4, 6, 3), dtype=np.uint8)
        put(tmp_path / "colour", {name: saved(Image.fromarray(pixels), "BMP" if name.endswith("bmp") else "PNG")})
    assert load_data(tmp_path / "colour").sha256.startswith("3b3f79200a3ef9f722e18c290eab5205")
    for i, name in enumerate(["3.png", "1.png", "2.png"]):
        pixels = np.random.default_rng(i).integers(0, 256, (4, 6), dtype=np.uint8)
        put(tmp_path / "grey", {name: saved(Image.fromarray(pixels))})
    put(tmp_path, {"l.csv": "file,label\n1.png,good\n3.png,bad\n"})
    assert reveal(load_data(tmp_path / "grey"), str(tmp_path / "l.csv"), 0)[0].sha256.startswith("4ce7dec54c5dcaf7")
    x = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x=x, y=np.array(["b", "a", "", "a", "b", "?"]))
    assert load_data(tmp_path / "d.npz").sha256.startswith("34573965697a964b")
    assert load_data("digits").sha256.startswith("6748746a57e04448")


def test_links_in_circles_end(tmp_path):
    put(tmp_path, {**A, **B})
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "b" / "up").symlink_to(tmp_path)
    assert set(load_data(tmp_path).names) == {"a/0.png", "b/0.png"}


def test_a_folder_of_a_built_in_sets_name(tmp_path, monkeypatch):
    monkeypatch.chdir(put(tmp_path, {f"digits/{name}": content for name, content in (A | B).items()}))
    with pytest.raises(SelfcalError, match=r"write \./digits for the folder, or builtin:digits for the set"):
        load_data("digits")
    for path in ("./digits", "digits/", tmp_path / "digits"):
        assert load_data(path).classes == ("a", "b")
    assert load_data("builtin:digits").published
    assert not load_data("./digits").published
    (tmp_path / "digits" / "config.json").write_text("{}")  # a run's folder
    assert load_data("digits").published
    with pytest.raises(SelfcalError, match="unknown data 'digts'; did you mean 'digits'"):
        load_data("builtin:digts")


def test_only_folders_are_resized():
    with pytest.raises(
        SelfcalError, match=r"--size 16 is for a folder of images; examples of digits are shaped \(1, 8, 8"
    ):
        load_data("digits", size=16)
    assert load_data("digits", size=8).shape == (1, 8, 8)
