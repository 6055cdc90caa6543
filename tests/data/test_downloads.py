"""CIFAR archives and IDX files: small ones of our own in the published formats, and every way they can be wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from selfcal.core.errors import SelfcalError
from selfcal.data import cifar, idx, plain_pickle
from selfcal.data.sources import load_data

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 4, 3072), dtype=np.uint8)
LABELS = RNG.integers(0, 3, (6, 4))
NAMES = ["cat", "dog", "ship"]
PUBLISHED = dict(cifar.RELEASES)


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 did, in whose format the published files are."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, value):
        self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


def old_pickle(value):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"numpy._core", b"numpy.core")


def files_of(version):
    """The contents of one archive, by name."""
    batches = [*version.train, *version.test]
    if version.label_bytes:
        data = {}
        for i, name in enumerate(batches):
            coarse = np.zeros((4, version.label_bytes - 1), dtype=np.uint8)
            data[name] = np.hstack([coarse, LABELS[i][:, None].astype(np.uint8), PIXELS[i]]).tobytes()
        return data | {version.names: "\n".join(NAMES).encode() + b"\n\n"}
    text = str.encode
    data = {
        name: old_pickle({text("data"): PIXELS[i], text(f"{version.labels}s"): LABELS[i].tolist()})
        for i, name in enumerate(batches)
    }
    return data | {version.names: old_pickle({text(f"{version.labels}_names"): [text(n) for n in NAMES]})}


def pack(path, version, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{version.folder}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Put an archive among the user's downloads and pretend that its checksum is the published one."""
    monkeypatch.setenv("SELFCAL_DATA", str(tmp_path))

    def put(name, which, files=None):
        version = PUBLISHED[name][which]
        path = tmp_path / version.archive
        pack(path, version, files_of(version) if files is None else files)
        believed = replace(version, md5=hashlib.md5(path.read_bytes()).hexdigest())
        monkeypatch.setitem(cifar.RELEASES, name, (believed,))
        monkeypatch.setitem(cifar.PLACES, path.name, (name, believed))
        return path

    return put


@pytest.mark.parametrize("which", [0, 1], ids=["python", "binary"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_archives(publish, name, which):
    path = publish(name, which)
    data, again = load_data(name), load_data(path)
    batches = len(cifar.RELEASES[name][0].train)
    assert data.sha256 == again.sha256
    assert (data.name, data.classes) == (name, tuple(NAMES))
    assert data.y.tolist() == LABELS[:batches].flatten().tolist()
    assert data.y_test.tolist() == LABELS[batches].tolist()
    expected = torch.tensor(PIXELS[:batches].reshape(-1, 3, 32, 32)).float() / 127.5 - 1
    torch.testing.assert_close(data.x[:], expected)


def test_cifar_unpacked_by_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFCAL_DATA", str(tmp_path))
    version = cifar.RELEASES["cifar10"][0]
    (tmp_path / version.folder).mkdir()
    for name, data in files_of(version).items():
        (tmp_path / version.folder / name).write_bytes(data)
    assert len(load_data("cifar10").x) == 20
    assert len(load_data(tmp_path / version.folder).x) == 20, "the folder itself may be named, too"
    stray = tmp_path / version.folder / "data_batch_3"
    stray.rename(tmp_path / "elsewhere")
    stray.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SelfcalError, match="is a link that leads out"):
        load_data("cifar10")


class Bomb:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_pickle_that_would_run_code_does_not(publish, tmp_path):
    version = cifar.RELEASES["cifar10"][0]
    mark = tmp_path / "ran"
    for spoiled in (Bomb(mark), {b"data": PIXELS[0], b"labels": [Bomb(mark)]}, np.array([Bomb(mark)], dtype=object)):
        publish("cifar10", 0, files_of(version) | {"data_batch_2": old_pickle(spoiled)})
        with pytest.raises(SelfcalError, match="more than arrays and plain containers"):
            load_data("cifar10")
    assert not mark.exists()


class Called:
    """Unpickles to whatever a function of numpy makes of these arguments, with this state."""

    def __init__(self, function, arguments, *state):
        self.reduced = (function, arguments, *state)

    def __reduce__(self):
        return self.reduced


RECONSTRUCT = np.zeros(0).__reduce__()[0]
HIDDEN_OBJECTS = Called(np.dtype, ("i8", False, True), (3, "|", None, None, None, -1, -1, 63))
"""A dtype whose flags say that its eight bytes are the address of an object."""


@pytest.mark.parametrize(
    "forged",
    [
        Called(np.ndarray, ((1,), "O", b"AAAAAAAA")),
        Called(np.ndarray, ((4, 3072), "u1")),
        Called(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), np.dtype("O"), False, [1])),
        Called(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), np.dtype([("a", "u1")]), False, b"A")),
        Called(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), HIDDEN_OBJECTS, False, b"AAAAAAAA")),
        Called(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (2**40,), np.dtype("u1"), False, b"A")),
        Called(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (-1,), np.dtype("u1"), False, b"A")),
        Called(RECONSTRUCT, (np.ndarray, (0,), b"b")),
    ],
)
def test_an_array_is_made_of_checked_bytes_alone(publish, forged):
    """numpy's own constructors would take an address, or leave memory as it is, for whoever calls them."""
    batch = old_pickle({b"data": forged, b"labels": [0] * 4})
    publish("cifar10", 0, files_of(cifar.RELEASES["cifar10"][0]) | {"data_batch_2": batch})
    with pytest.raises(SelfcalError, match="data_batch_2"):
        load_data("cifar10")


@pytest.mark.parametrize("array", [np.array([b"text"]), np.array(["text"]), np.zeros(2, "c8"), np.zeros(1, "M8[s]")])
def test_arrays_of_anything_but_plain_numbers_are_never_made(array):
    with pytest.raises(plain_pickle.NotPlain, match="asks for an array of"):
        plain_pickle.loads(old_pickle({b"a": array}))


@pytest.mark.parametrize("array", [np.arange(6, dtype=">i4").reshape(2, 3), np.asfortranarray(np.eye(3)), np.zeros(0)])
def test_plain_arrays_come_back_as_they_were(array):
    found = plain_pickle.loads(old_pickle({b"a": array}))[b"a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"data_batch_2": b"nonsense"}, "data_batch_2 is damaged"),
        ({"data_batch_2": old_pickle([1, 2])}, "it is not a dictionary"),
        ({"data_batch_2": old_pickle({b"data": PIXELS[0][:, :100], b"labels": [0] * 4})}, "32×32 colour"),
        ({"data_batch_2": old_pickle({b"data": PIXELS[0], b"labels": [0] * 3})}, "each of its 4 images a label"),
        ({"data_batch_2": old_pickle({b"data": PIXELS[0], b"labels": [0, 1, 2, 3]})}, "do not fit 3 classes"),
        ({"batches.meta": old_pickle({b"label_names": "cat"})}, "does not name the classes"),
    ],
)
def test_wrong_batches(publish, spoil, message):
    publish("cifar10", 0, files_of(cifar.RELEASES["cifar10"][0]) | spoil)
    with pytest.raises(SelfcalError, match=message):
        load_data("cifar10")


def test_a_broken_download_is_named(tmp_path, publish):
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(b"half of it")
    with pytest.raises(SelfcalError, match=r"not the published file: its MD5 is [0-9a-f]{32}"):
        load_data(path)
    publish("cifar100", 1, {"train.bin": b"123"})
    with pytest.raises(SelfcalError, match="lacks the file fine_label_names"):
        load_data("cifar100")
    publish("cifar100", 1, {"train.bin": b"123", "fine_label_names.txt": b"a\nb\n"})
    with pytest.raises(SelfcalError, match="not a multiple of 3074"):
        load_data("cifar100")


def test_data_that_is_not_there_says_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFCAL_DATA", str(tmp_path))
    with pytest.raises(SelfcalError, match=r"download cifar-10-python\.tar\.gz from https://.*SELFCAL_DATA"):
        load_data("cifar10")
    with pytest.raises(SelfcalError, match="train-images-idx3-ubyte"):
        load_data("mnist")


def idx_bytes(array):
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


@pytest.fixture
def mnist(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    x, y = RNG.integers(0, 256, (8, 5, 4), dtype=np.uint8), np.arange(8, dtype=np.uint8) % 4
    for (images, labels), n in ((idx.TRAIN, 8), (idx.TEST, 3)):
        (folder / f"{images}.gz").write_bytes(gzip.compress(idx_bytes(x[:n])))
        (folder / labels).write_bytes(idx_bytes(y[:n]))
    return folder, x, y


def test_idx_files(mnist, monkeypatch):
    folder, x, y = mnist
    data = load_data(folder)
    assert data.shape == (1, 5, 4)
    assert (data.y.tolist(), data.classes) == (y.tolist(), ("0", "1", "2", "3"))
    torch.testing.assert_close(data.x[:, 0], torch.tensor(x).float() / 127.5 - 1)
    assert len(data.x_test) == 3
    monkeypatch.setenv("SELFCAL_DATA", str(folder.parent))
    assert load_data("mnist").sha256 == data.sha256


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (idx.TRAIN[1], b"", "not an IDX file"),
        (idx.TRAIN[1], idx_bytes(np.zeros(8, dtype=np.uint8))[:-1], "should hold 8 bytes, but has 7"),
        (idx.TRAIN[1], b"\0\0\x08\xff", "should hold"),
        (idx.TRAIN[1], idx_bytes(np.zeros(7, dtype=np.uint8)), "is shaped"),
        (f"{idx.TRAIN[0]}.gz", b"\x1f\x8bnot a gzip file", "cannot be unpacked"),
        (idx.TEST[1], idx_bytes(np.full(3, 9, dtype=np.uint8)), "a label is 9, but there are 4 classes"),
    ],
)
def test_wrong_idx_files(mnist, name, content, message):
    folder, _, _ = mnist
    (folder / name).write_bytes(content)
    with pytest.raises(SelfcalError, match=message):
        load_data(folder)


@pytest.mark.skipif(not idx.is_idx(Path("/usr/share/datasets/fashion-mnist")), reason="Fashion-MNIST is not installed")
def test_the_real_fashion_mnist():
    data = load_data("fashion")
    assert (len(data.x), len(data.x_test), data.shape) == (60_000, 10_000, (1, 28, 28))
    assert torch.bincount(data.y).tolist() == [6000] * 10
