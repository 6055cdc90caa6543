"""Files of comparisons, toys, demos, diagnoses, caches, exports and adopted models, fuzzed: each is read back as it was
written, or is one sentence.

A new file that is read back is a new row: where it lies, and what reads it.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rich.console import Console
from safetensors.torch import save

import selfcal
import small
import written
from mutations import altered, hostile
from selfcal.core.errors import SelfcalError
from selfcal.core.reading import read_tensors
from selfcal.data.decoded import Kept
from selfcal.diffusion.samples import Samples
from selfcal.evaluation import cache
from selfcal.experiments.compare.grid import Grid
from selfcal.experiments.compare.page import print_comparison
from selfcal.experiments.compare.page import write_page as comparison_page
from selfcal.experiments.compare.tasks import Cell
from selfcal.experiments.demo.page import write_page as demo_page
from selfcal.experiments.doctor.page import write_page as doctor_page
from selfcal.experiments.toy.page import write_page as toy_page
from selfcal.experiments.toy.rival import Task
from selfcal.experiments.toy.toy import claim, result_of
from selfcal.interop import layouts, score_sde

pytestmark = pytest.mark.timeout(7200 if small.LONG else 300)

OUTCOME = "cells/cg/0.02/seed-0.json"


def compared(folder):
    for cell in Grid.read(folder).cells:
        cell.state(folder)
    comparison_page(folder)
    print_comparison(Console(file=io.StringIO(), width=200), folder)


def toyed(folder):
    toy_page(folder)


def toy_result(folder):
    result_of(Task("cg", 0, 60, None, folder / "seeds" / "0000"))


def toy_claimed(folder):
    claim(folder, written.TOY)


def cached(folder):
    """Never an error: made again."""
    (folder / "cache" / "selfcal").mkdir(parents=True, exist_ok=True)
    found = cache.kept("name")
    if found is not None:
        assert found["x"].shape == (3,)


def mapped(folder):
    found = Kept("folder", "state").mapped()
    if found is not None:
        assert found[0][:4] == b"abcd"


def adopted(folder):
    layouts.find(folder).weights  # noqa: B018


def adopted_weights(folder):
    score_sde.read(folder / "model.safetensors")


# by name: (which folder, the file in it, what reads it)
FILES = {
    "compare: compare.json": ("comparison", "compare.json", compared),
    "compare: outcome": ("comparison", OUTCOME, compared),
    "compare: pictures.npz": ("comparison", OUTCOME.replace(".json", ".npz"), compared),
    "compare: data.npz": ("comparison", "data.npz", compared),
    "toy: results.json": ("toy", "results.json", toyed),
    "toy: result of a seed": ("toy", "seeds/0000/cg.json", toy_result),
    "toy: toy.json": ("toy", "toy.json", toy_claimed),
    "toy: fields.npz": ("toy", "seeds/0000/truth.npz", toyed),
    "demo: results.json": ("demo", "results.json", demo_page),
    "demo: guides.json": ("demo", "guides.json", demo_page),
    "demo: pictures.npz": ("demo", "pictures.npz", demo_page),
    "doctor: doctor.json": ("doctor", "doctor.json", doctor_page),
    "doctor: doctor.npz": ("doctor", "doctor.npz", doctor_page),
    "run: examples.json": ("doctor", "examples.json", lambda folder: selfcal.load(folder).data),
    "cache: tensors": ("cache", "selfcal/name.tensors", cached),
    "cache: record of pixels": ("cache", "selfcal/pixels-folder-state.json", mapped),
    "adopt: model_index.json": ("pipeline", "model_index.json", adopted),
    "adopt: scheduler_config.json": ("pipeline", "scheduler/scheduler_config.json", adopted),
    "adopt: model.safetensors": ("pipeline", "model.safetensors", adopted_weights),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One of each kind, whole."""
    root = tmp_path_factory.mktemp("results")
    points = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    np.savez(root / "data.npz", x=points, y=np.arange(40) % 2)
    run = selfcal.train(root / "data.npz", "cg", 0.5, root / "doctor", steps=3, settings=small.SETTINGS)
    run.diagnose(minutes=0.01)
    (root / "doctor" / "doctor.npz").write_bytes(npz(nearest=np.zeros((2, 2, 1, 4, 4), np.float32)))
    about = json.loads((root / "doctor" / "doctor.json").read_text())
    (root / "doctor" / "doctor.json").write_text(json.dumps(about | {"pictures_sha256": None}))
    np.savez(root / "data.npz", x=points[::-1], y=np.arange(40) % 2)  # changed: examples.json is asked for
    made = {"comparison": written.comparison, "toy": written.toy, "demo": written.demo}
    for name, make in made.items():
        make(root / name)
    return root


def npz(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@pytest.fixture
def place(folders, monkeypatch):
    """The folder with the cache and the adopted model in it, which are made by the code that reads them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders / "cache"))
    if not (folders / "cache").exists():
        cache.keep("name", {"x": torch.arange(3.0)})
        Kept("folder", "state").write(lambda stream: {"bytes": stream.write(b"abcd")})
    if not (folders / "pipeline").exists():
        parts = {"_class_name": "DDPMPipeline", "unet": ["diffusers", "U"], "scheduler": ["diffusers", "S"]}
        written.put(folders / "pipeline" / "model_index.json", parts)
        written.put(folders / "pipeline" / "unet" / "config.json", {"in_channels": 1})
        written.put(folders / "pipeline" / "scheduler" / "scheduler_config.json", {"num_train_timesteps": 10})
        (folders / "pipeline" / "unet" / f"{layouts.STEM}.safetensors").write_bytes(save({"w": torch.ones(2)}))
        weights = {"model.all_modules.0.W": torch.ones(4), "model.sigmas": torch.tensor([0.01, 50.0])}
        (folders / "pipeline" / "model.safetensors").write_bytes(save(weights))
    return folders


@pytest.mark.parametrize("name", FILES)
def test_what_is_spoiled_below_can_be_read_whole(place, name):
    folder, file, read = FILES[name]
    assert (place / folder / file).is_file()
    if name == "adopt: model.safetensors":  # weights of no network, but weights
        with pytest.raises(SelfcalError, match=r"is not the NCSN\+\+"):
            read(place / folder)
    else:
        read(place / folder)


DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


def mostly_undrawn(monkeypatch):
    """Figures are made as ever and drawn every tenth time: drawing is most of the work, and reads no file."""
    draw, asked = Figure.savefig, itertools.count(1)

    def save_figure(self, stream, **keywords):
        if next(asked) % 10 == 0:
            draw(self, stream, **keywords)
        else:
            stream.write("<svg></svg>" if isinstance(stream, io.StringIO) else DOT)

    monkeypatch.setattr(Figure, "savefig", save_figure)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=2000 if small.LONG else 15)
@given(data=st.data())
def test_a_file(place, capsys, tally, monkeypatch, name, data):
    """Read, or refused by our own error: anything else comes through and fails."""
    if not tally:
        mostly_undrawn(monkeypatch)
    tally[name] += 1
    folder, file, read = FILES[name]
    path = place / folder / file
    good = path.read_bytes()
    try:
        path.write_bytes(data.draw(spoiled(good, path.suffix)))
        with suppress(SelfcalError):
            read(place / folder)
        capsys.readouterr()
    finally:
        path.write_bytes(good)


def spoiled(good, suffix):
    """Other bytes, and what only a reader of the format would think of: other values of the right form."""
    if suffix == ".json":
        meant = altered(json.loads(good)).map(lambda tree: json.dumps(tree).encode())
        return st.one_of(meant, meant, hostile(good))
    if suffix == ".npz":
        return st.one_of(hostile(good), other_arrays(good))
    if suffix == ".safetensors":
        size = 8 + struct.unpack("<Q", good[:8])[0]
        meant = altered(json.loads(good[8:size])).map(lambda tree: json.dumps(tree).encode())
        return st.one_of(hostile(good), meant.map(lambda head: struct.pack("<Q", len(head)) + head + good[size:]))
    return hostile(good)


@st.composite
def other_arrays(draw, good):
    """The same names with arrays of other shapes, types and values, or without one of them."""
    from hypothesis.extra import numpy as hnp

    with np.load(io.BytesIO(good)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    types = st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.unicode_string_dtypes(), hnp.boolean_dtypes())
    shapes = hnp.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=4)
    name = draw(st.sampled_from(sorted(arrays)))
    if draw(st.integers(0, 4)) == 0:
        del arrays[name]
    else:
        arrays[name] = draw(hnp.arrays(types, shapes))
    return npz(**arrays)


@given(data=st.data())
def test_samples_that_are_read_as_data(tmp_path_factory, tally, data):
    """An .npz that `sample` wrote is data, too: `selfcal train samples.npz`."""
    from selfcal.data.sources import load_data

    path = tmp_path_factory.getbasetemp() / "samples.npz"
    path.unlink(missing_ok=True)
    Samples(torch.zeros(4, 1, 4, 4), torch.arange(4) % 2, ("a", "b"), {"seed": 0}).save(path)
    tally["sample: samples.npz"] += 1
    path.write_bytes(data.draw(st.one_of(hostile(path.read_bytes()), other_arrays(path.read_bytes()))))
    with suppress(SelfcalError):
        load_data(path)


@given(data=st.data())
def test_any_safetensors(tmp_path_factory, tally, data):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    good = save({"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0)})
    tally["any: safetensors"] += 1
    path.write_bytes(data.draw(spoiled(good, ".safetensors")))
    with suppress(SelfcalError):
        assert all(t.numel() < 100 for t in read_tensors(path).values())


def test_what_was_seen_of_damaged_outcomes(tmp_path, capsys):
    """Eight of a comparison's, five of a toy's: tracebacks once, one sentence each that says what to do."""
    from command_line import typed_unwrapped

    whole = written.outcome("cg", "0.02")
    damaged = [b"", b"{", b"null", b"[]", b"{}", json.dumps({**whole, "results": [{}]}).encode()]
    damaged += [json.dumps({**whole, "state": "done", "results": None}).encode(), b"\xff\xfe"]
    for number, content in enumerate(damaged):
        out = written.comparison(tmp_path / f"c{number}")
        (out / OUTCOME).write_bytes(content)
        code, _, err = typed_unwrapped(capsys, "report", out)
        assert code == 2
        assert "seed-0.json" in err
        assert "the same compare command makes it anew" in err
    for number, content in enumerate((b"", b"{", b"null", b"{}", b'{"results": []}')):
        out = written.toy(tmp_path / f"t{number}")
        (out / "results.json").write_bytes(content)
        code, _, err = typed_unwrapped(capsys, "report", out)
        assert code == 2
        assert "results.json" in err
        (out / "seeds/0000/cg.json").write_bytes(content)
        with pytest.raises(SelfcalError, match="the same toy command makes it anew"):
            toy_result(out)


def test_an_outcome_of_another_cell_is_not_taken(tmp_path):
    out = written.comparison(tmp_path / "c")
    shutil.copy(Cell("cg-sc-all", "0.02", 0).outcome(out), out / OUTCOME)
    with pytest.raises(SelfcalError, match=r"is the outcome of another cell"):
        comparison_page(out)


def test_no_cell_leads_out_of_the_comparison(tmp_path):
    out = written.comparison(tmp_path / "c")
    for cell in (["../../x", "0.02", 0], ["cg", "..", 0], ["cg ../x=1", "0.02", 0], ["cg", "", 0]):
        about = json.loads((out / "compare.json").read_text())
        (out / "compare.json").write_text(json.dumps(about | {"cells": [cell]}))
        with pytest.raises(SelfcalError, match="cannot be read"):
            Grid.read(out)
    assert Path(Cell("cg", "/etc/labels.csv", 0).run(out)).is_relative_to(out)
