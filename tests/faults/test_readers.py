"""Every reader, fed with hostile files: what it understands, or SelfcalError; never anything else, and not for long.

A new reader is a new row of READERS: good files to start from, and a function that reads one path.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import pickle
import resource
import shutil
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import selfcal
import small
from mutations import altered, hostile
from selfcal.cli.show import show
from selfcal.core.errors import SelfcalError
from selfcal.core.reading import LARGEST_ARRAYS
from selfcal.data import cifar
from selfcal.data import idx as idx_files
from selfcal.data.labels import reveal
from selfcal.data.sources import load_data
from selfcal.methods.stage import Context
from selfcal.training import checkpoints
from selfcal.training import stage as stages

pytestmark = pytest.mark.timeout(3600 if small.LONG else 300)


def npz(save=np.savez, **arrays):
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


def image(form, size=(5, 4), **more):
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, form, **more)
    return stream.getvalue()


X = np.random.default_rng(0).normal(size=(6, 2))
CSV = b"file,label\n0,a\n1,b\n2,a\n"
NPZ = [
    npz(x=X, y=np.arange(6) % 2),
    npz(np.savez_compressed, x=X.reshape(3, 2, 2).astype(np.float32) / 9, y=np.array(["a", "", "b"])),
    npz(x=np.zeros((2, 4, 4, 3), np.uint8), x_test=np.zeros((1, 4, 4, 3), np.uint8), y=[0, 1], y_test=[1]),
]
JEM = {"terms.jem_naive": True, "terms.jem_steps": 1}
IMAGES = {form: image(form) for form in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")}


def read_csv(path):
    points = selfcal.data.dataset.Dataset("d", *_points())
    return reveal(points, str(path), 0)


def _points():
    import torch

    x, y = torch.as_tensor(X).float(), torch.full((6,), -1)
    return x, y, (), tuple(map(str, range(6))), x[:0], y[:0]


def read_picture(path):
    """The file in a folder beside a good one, whatever its ending says."""
    return load_data(path.parent)


def idx(*shape):
    """An IDX file of bytes, in the published layout."""
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(math.prod(shape))


def read_idx(path):
    """The file as the images, with labels that would fit; then as the labels. How often it was taken."""
    taken = 0
    for wrong, right in (("images-idx3", idx(3)), ("labels-idx1", idx(3, 4, 4))):
        other = "labels-idx1" if "images" in wrong else "images-idx3"
        for name in ("", ".gz"):
            (path.parent / f"train-{wrong}-ubyte{name}").unlink(missing_ok=True)
        ending = ".gz" if path.read_bytes()[:2] == b"\x1f\x8b" else ""
        shutil.copy(path, path.parent / f"train-{wrong}-ubyte{ending}")
        (path.parent / f"train-{other}-ubyte").write_bytes(right)
        with suppress(SelfcalError):
            idx_files.load(path.parent)
            taken += 1
    return taken


def cifar_batch(labels=(0, 1)):
    return pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": list(labels)}, protocol=3)


def read_cifar(path):
    """The unpacked folder with this file in place of the last batch, then of the names; how often it was taken.

    Unpacked, because archives are known by their checksums.
    """
    version = cifar.RELEASES["cifar10"][1 if path.suffix == ".bin" else 0]
    good = {
        version.names: pickle.dumps({b"label_names": [b"a", b"b"]}, protocol=3) if path.suffix != ".bin" else b"a\nb\n"
    }
    for name in (*version.train, *version.test):
        good[name] = bytes(3073) if path.suffix == ".bin" else cifar_batch()
    taken = 0
    for name in (version.test[0], version.names):
        for other, content in (good | {name: path.read_bytes()}).items():
            (path.parent / other).write_bytes(content)
        with suppress(SelfcalError):
            cifar._dataset("cifar10", version, path.parent)
            taken += 1
    return taken


READERS = {
    "tsv of UTF-16": ("labels.tsv", ["image\tclass\n0\ta\n1\tb\n2\t?\n".encode("utf-16"), b"0\ta\n1\tb\n"], read_csv),
    "csv": ("labels.csv", [CSV, b'\xef\xbb\xbffile, label, note\r\n"0", "a,b", x\r\n1,c,\r\n'], read_csv),
    "npz": ("data.npz", NPZ, load_data),
    **{f"folder {f}": (f"pile/a.{f.lower()}", [c], read_picture) for f, c in IMAGES.items()},
    "idx": ("file", [idx(3, 4, 4), idx(3), gzip.compress(idx(3, 4, 4))], read_idx),
    "cifar python": ("batch", [cifar_batch(), pickle.dumps({b"label_names": [b"a", b"b"]}, protocol=3)], read_cifar),
    "cifar binary": ("batch.bin", [bytes(2 * 3073), b"a\nb\n"], read_cifar),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_spoiled_below_can_be_read_whole(tmp_path, name):
    """Otherwise a reader that refuses everything would pass the fuzzing."""
    place, good, read = READERS[name]
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    for content in good:
        path.write_bytes(content)
        assert read(path)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_data_file(tmp_path_factory, name, data, tally):
    """Read, or refused by our own error: anything else comes through and fails."""
    tally[f"data: {name}"] += 1
    place, good, read = READERS[name]
    path = tmp_path_factory.getbasetemp() / f"fuzz-{name.replace(' ', '-')}" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.draw(hostile(*good)))
    with suppress(SelfcalError):
        read(path)


@given(arrays=st.data())
def test_an_npz_of_any_arrays(tmp_path_factory, arrays, tally):
    """Whole archives, of types and shapes that nobody thought of."""
    tally["data: npz of any arrays"] += 1
    from hypothesis.extra import numpy as hnp

    types = st.one_of(hnp.scalar_dtypes(), hnp.byte_string_dtypes(), hnp.unicode_string_dtypes(), hnp.array_dtypes())
    shapes = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)
    some = hnp.arrays(types, shapes)
    chosen = arrays.draw(st.dictionaries(st.sampled_from(["x", "y", "x_test", "y_test", "../x"]), some, max_size=4))
    path = tmp_path_factory.getbasetemp() / "any.npz"
    path.write_bytes(npz(**chosen))
    with suppress(SelfcalError):
        data = load_data(path)
        assert len(data.x) == len(data.y) > 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, with every file that a run directory can hold."""
    out = tmp_path_factory.mktemp("readers") / "run"
    small.train(out, steps=5, method="cg-jem", **JEM)
    selfcal.load(out).evaluate(count=40, steps=2, intervals=False)
    shutil.copy(out / "metrics.json", out.with_name("metrics.json"))
    report = {"unlabelled": 3, "kept": 2, "right": None, "threshold": 0.9}
    (out / "pseudo_labels.json").write_text(json.dumps({"classifier": report}))
    diverged = {"network": "score", "step": 3, "losses": {"dsm": "nan"}, "grad_norm": "1.0", "rollbacks": 3}
    (out.with_name("diverged.json")).write_text(json.dumps(diverged))
    return out


@pytest.fixture(scope="module")
def learner(run):
    """Ready to go on from the run's checkpoint of the classifier."""
    opened = selfcal.load(run)
    stage, settings = opened.stages[1], opened.settings
    made = stages.new_learner(stage, settings, opened.shape, 2, 0, Accelerator(cpu=True))
    made.memories = {"jem": stage.terms(Context(settings, 0.03, {}))["jem"].term}
    return made


def use(out):
    """What one does with a run that one was handed."""
    with suppress(SelfcalError):
        found = selfcal.load(out)
        found.describe()
        if not found.diverged:
            assert found.networks
    with suppress(SelfcalError):
        show(out)


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "pseudo_labels.json", "diverged.json"])
@given(data=st.data())
def test_a_file_of_a_run_directory(run, capsys, name, data, tally):
    """Used, or refused by our own error; what the run really is, is shown again afterwards."""
    tally[f"run: {name}"] += 1
    file = run / name
    good = (file if file.exists() else run.with_name(name)).read_bytes()
    meant = altered(json.loads(good)).map(lambda tree: json.dumps(tree).encode())
    kept = file.read_bytes() if file.exists() else None
    try:
        file.write_bytes(data.draw(st.one_of(meant, meant, hostile(good))))
        use(run)
        capsys.readouterr()
    finally:
        file.unlink() if kept is None else file.write_bytes(kept)
    assert selfcal.load(run).describe()["finished"]


@given(data=st.data())
def test_the_log_of_a_run_directory(run, data, tally):
    tally["run: log.jsonl"] += 1
    from selfcal.training.journal import Journal

    file = run / "log.jsonl"
    good = file.read_bytes()
    try:
        file.write_bytes(data.draw(hostile(good)))
        Journal(file, ["score", "classifier"]).rewind("classifier", data.draw(st.integers(0, 6)), 0)
        assert all(json.loads(line)["network"] for line in file.read_text().splitlines())
    finally:
        file.write_bytes(good)


@pytest.mark.parametrize("name", ["weights", "ema", "optimizer", "terms", "state.json"])
@given(data=st.data())
def test_a_file_of_a_checkpoint_with_a_manifest_that_agrees(run, learner, name, data, tally):
    """Not damaged but forged: the hashes are right, what they vouch for is not."""
    tally[f"checkpoint: {name}"] += 1
    path = checkpoints.path_of(run / "checkpoints" / "classifier", 5)
    file = path / (name if "." in name else f"{name}.safetensors")
    kept = {p: p.read_bytes() for p in (file, path / "manifest.json")}
    good = kept[file]
    choices = [hostile(good)]
    if name == "state.json":
        choices.append(altered(json.loads(good)).map(lambda tree: json.dumps(tree).encode()))
    else:
        choices.append(st.tuples(altered(_header(good)), st.just(_body(good))).map(_safetensors))
    try:
        file.write_bytes(data.draw(st.one_of(choices)))
        (path / "manifest.json").write_bytes(checkpoints._manifest(checkpoints._hashes(path)))
        with suppress(SelfcalError):
            assert selfcal.load(run).networks
        with suppress(SelfcalError):
            step, state, about = checkpoints.load_newest(path.parent)
            learner.restore(step, state)
            stages.rollbacks_in(about, path.parent)
    finally:
        for place, content in kept.items():
            place.write_bytes(content)


def _header(packed):
    return json.loads(packed[8 : 8 + struct.unpack("<Q", packed[:8])[0]])


def _body(packed):
    return packed[8 + struct.unpack("<Q", packed[:8])[0] :]


def _safetensors(parts):
    header = json.dumps(parts[0]).encode()
    return struct.pack("<Q", len(header)) + header + parts[1]


# --- by name: attacks that are known --------------------------------------------------------------


def refused(path, match, labels=1.0):
    with pytest.raises(SelfcalError, match=match):
        reveal(load_data(path), labels, 0)


def bomb(path, shape, descr="<f4", body=b"", stated=None):
    """An .npz whose header declares far more than the file holds, or than anybody has."""
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    if stated is not None:  # the sizes in the archive's directory lie, too
        raw = path.read_bytes().replace(struct.pack("<I", len(content)), struct.pack("<I", stated))
        path.write_bytes(raw)


def test_decompression_bombs_are_refused_before_they_unpack(tmp_path):
    """Within 300 MB more than there is now: nothing is allocated for what is only declared."""

    def attacks():
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 300_000_000,) * 2)
        for number, (shape, descr, match) in enumerate(
            [
                ((2**31, 2), "<f4", "unpacks to 16 GiB"),
                ((2**62, 2**62), "<f4", "unpacks to"),
                ((10**12, 0), "<f4", "no numbers|holds no examples|unpacks to"),
                ((2**31,), "<U0", "not what it holds|unpacks|expected one example|numbers are expected"),
                ((1000, 1000, 100), "<f4", "not what it holds"),
            ]
        ):
            path = tmp_path / f"{number}.npz"
            bomb(path, shape, descr)
            refused(path, match)
        bomb(tmp_path / "lies.npz", (10, 2), "<f4", bytes(10_000), stated=208)
        refused(tmp_path / "lies.npz", "cannot be read|not what it holds")

    assert small.ended(small.forked(attacks)) == 0
    assert LARGEST_ARRAYS == 2**33


def png_of(width, height):
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = zlib.compress(bytes(10_000_000), 9)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_an_idx_file_that_unpacks_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(idx_files, "LARGEST", 2**20)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(2**24)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(3))
    with pytest.raises(SelfcalError, match="unpacks to more than"):
        idx_files.load(tmp_path)


def test_images_that_declare_too_many_pixels(tmp_path):
    for size in ((50_000, 50_000), (9_000, 9_000), (2**31 - 1, 2**31 - 1)):
        (tmp_path / "a.png").write_bytes(png_of(*size))
        refused(tmp_path, r"a\.png (is 9000×9000 pixels|cannot be read as an image)")


def test_formats_that_start_other_programs_are_not_opened(tmp_path):
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    )
    refused(tmp_path, "cannot be read as an image")


def test_no_path_leads_out_of_the_data(tmp_path):
    outside, pile = tmp_path / "outside", tmp_path / "pile"
    for place in (outside / "secret", pile / "a", pile / "b"):
        place.mkdir(parents=True)
        (place / "0.png").write_bytes(IMAGES["PNG"])
    assert len(load_data(pile).x) == 2
    for entry in ("../outside/secret/0.png", str(outside / "secret" / "0.png"), "a/../../outside/secret/0.png"):
        (tmp_path / "l.csv").write_text(f"file,label\n{entry},a\n")
        refused(pile, "which is not in pile", str(tmp_path / "l.csv"))
    (pile / "a" / "1.png").symlink_to(outside / "secret" / "0.png")
    refused(pile, r"1\.png is a link that leads out of")
    (pile / "a" / "1.png").unlink()
    (pile / "c").symlink_to(outside / "secret")
    refused(pile, r"c is a link that leads out of")
    (pile / "c").unlink()
    (pile / "a" / "1.png").symlink_to("../b/0.png")  # within the data, links are welcome
    assert len(load_data(pile).x) == 3
    (tmp_path / "alias").symlink_to(pile)
    assert len(load_data(tmp_path / "alias").x) == 3
    (pile / "train").symlink_to(outside)
    refused(pile, r"train is a link that leads out of")


def test_class_names_do_not_lead_samples_elsewhere(tmp_path):
    import torch

    from selfcal.diffusion.samples import Samples

    names = ("../../up", "/abs", "..", "a\\b", "nul\0", "", "good one")
    samples = Samples(torch.zeros(7, 1, 2, 2), torch.arange(7), names, {})
    samples.save(tmp_path / "deep" / "out")
    made = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.png")}
    folders = [*(f"class-{i}" for i in range(6)), "good one"]
    assert made == {"deep/out/grid.png", *(f"deep/out/{n}/00000.png" for n in folders)}


def test_what_is_no_regular_file_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "labels.csv")
    with pytest.raises(SelfcalError, match="is not a file"):
        read_csv(tmp_path / "labels.csv")
    os.mkfifo(tmp_path / "data.npz")
    refused(tmp_path / "data.npz", "does not exist")


def test_deeply_nested_json(run):
    file = run / "config.json"
    good = file.read_bytes()
    for nested in (b"[" * 10**6, b'{"a":' * 10**5, b"[" * 900 + b"]" * 900):
        file.write_bytes(nested)
        with pytest.raises(SelfcalError, match="cannot be read"):
            selfcal.load(run)
    file.write_bytes(good)
