"""What people see and type in notebooks: short lines, pictures, and whatever images they have at hand."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import selfcal
from selfcal.core import progress
from selfcal.core.errors import SelfcalError
from selfcal.diffusion.inputs import as_examples
from selfcal.diffusion.samples import Samples

SMALL = {"score.width": 16, "classifier.width": 64, "classifier.steps": 300, "score.steps": 2, "run.log_every": 25}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Its score model is worth nothing, its classifier something."""
    return selfcal.train("digits", "cg", 0.2, tmp_path_factory.mktemp("r") / "run", settings=SMALL)


def samples(count=6, shape=(1, 8, 8)):
    made = {"scale": 1.5, "sampler": "heun"}
    return Samples(torch.rand(count, *shape) * 2 - 1, torch.arange(count) % 3, ("cat", "dog", "owl"), made)


def test_short_lines(run):
    assert repr(samples()) == "Samples(6 images of cat, dog, owl; 1×8×8, λ = 1.5, heun)"
    many = Samples(torch.zeros(9, 2), torch.arange(9), tuple("abcdefghi"), {})
    assert repr(many) == "Samples(9 points of a, b, c, d, e, f and 3 more; 2)"
    assert repr(run) == f"Run({str(run.path)!r}: cg on digits, {run.config['labelled']} of 1433 labelled, finished)"
    assert len(repr(run)) < 300


def test_samples_show_as_a_picture_with_the_classes_names():
    image = Image.open(io.BytesIO(samples()._repr_png_()))
    assert image.width > 64
    assert samples(shape=(2,))._repr_png_() is None, "points have none"


def test_samples_index_iterate_and_become_other_things(tmp_path):
    all_of_them = samples()
    assert torch.equal(all_of_them[1:3].x, all_of_them.x[1:3])
    assert torch.equal(all_of_them[all_of_them.y == 2].x, all_of_them.x[[2, 5]])
    assert all_of_them[-1].y.tolist() == [2]
    assert [len(one) for one in all_of_them] == [1] * 6
    assert np.array_equal(all_of_them.numpy(), all_of_them.x.numpy())
    first = all_of_them.to_pil()[0]
    assert (first.mode, first.size) == ("L", (8, 8))
    torch.testing.assert_close(as_examples(first, (1, 8, 8)), all_of_them.x[:1], rtol=0, atol=1 / 127)
    assert samples(shape=(3, 8, 8)).to_pil()[0].mode == "RGB"
    with pytest.raises(SelfcalError, match="no pictures"):
        samples(shape=(2,)).to_pil()
    all_of_them[:2].save(tmp_path / "two.npz")
    assert np.load(tmp_path / "two.npz")["x"].shape == (2, 1, 8, 8)


def test_the_same_images_in_every_form_get_the_same_answer(run):
    x = run.data.x_test[:20]
    expected = run.predict_proba(x)
    pixels = ((x + 1) * 127.5).round().byte()
    x = pixels.float() / 127.5 - 1  # the digits have 17 shades, which bytes round
    expected = run.predict_proba(x)
    pictures = [Image.fromarray(p[0].numpy()) for p in pixels]
    for given in (
        x.numpy(),
        x.double(),
        pixels,
        pixels.numpy(),
        pixels.numpy().astype(int),
        pixels[:, 0].numpy(),
        pixels.movedim(1, -1).numpy(),
        pictures,
        [p.convert("RGB") for p in pictures],
        list(x),
        [p.numpy() for p in pixels],
        Samples(x, torch.zeros(20, dtype=torch.long), run.classes, {}),
    ):
        torch.testing.assert_close(run.predict_proba(given), expected)
    for one in (pictures[3], pixels[3], pixels[3, 0].numpy(), x[3]):
        torch.testing.assert_close(run.predict_proba(one), expected[3:4])
    assert run.predict(pictures) == [run.classes[c] for c in expected.argmax(-1).tolist()]
    right = (expected.argmax(-1) == run.data.y_test[:20]).float().mean()
    assert right > 0.5, "pixels taken for [−1, 1] would be answered by chance"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.rand(2, 1, 8, 8), r"as if they spanned \[0, 1\]"),
        (255 * torch.rand(2, 1, 8, 8), r"inputs span \[.*or are uint8"),
        (torch.randint(300, 900, (2, 1, 8, 8)), "pixels go from 0 to 255"),
        (torch.zeros(2, 3, 8, 8), r"expected \(B, 1, 8, 8\)"),
        (Image.new("L", (9, 9)), r"shaped \(1, 1, 9, 9\); expected"),
        (torch.ones(2, 1, 8, 8, dtype=torch.bool), "have type bool"),
        ("cat.png", "numbers are expected|no batch of examples"),
        ([Image.new("L", (8, 8)), torch.zeros(1)], "are mixed"),
        (object(), "no batch of examples"),
        (float("nan") * torch.ones(2, 1, 8, 8), "inputs span"),
    ],
)
def test_what_would_be_answered_wrongly_is_refused(run, given, message):
    with pytest.raises(SelfcalError, match=message):
        run.predict_proba(given)


def test_noisy_inputs_may_lie_anywhere(run):
    assert run.predict_proba(5 * torch.randn(2, 1, 8, 8), sigma=5.0).shape == (2, 10)


def test_classes_as_people_write_them(run):
    for classes, expected in ((3, [3]), ("3", [3]), ("3,5", [3, 5]), ([3, "5"], [3, 5]), ("3, 5", [3, 5])):
        assert run.sample(classes=classes, count=2, steps=1).y.unique().tolist() == expected, classes
    assert run.sample(count=10, steps=1).y.tolist() == list(range(10))
    with pytest.raises(SelfcalError, match="unknown class 'ten'"):
        run.sample(classes="ten", count=1)


def test_the_log_is_a_table_and_a_picture(run):
    history = run.history()
    assert history.networks == ["score", "classifier"]
    assert len(history) == len((run.path / "log.jsonl").read_text().splitlines())
    assert history["classifier"]["ce"] == [row["ce"] for row in history if row["network"] == "classifier"]
    lines = repr(history).splitlines()
    assert "ce" in lines[0]
    assert lines[-1] == f"[{len(history)} lines]"
    assert "…" in repr(history)
    assert history._repr_html_().count("<tr>") == 12
    with pytest.raises(KeyError, match="there are the networks"):
        history["nothing"]
    figure = run.plot()
    assert [axes.get_title() for axes in figure.axes] == ["score", "classifier"]
    assert Image.open(io.BytesIO(figure._repr_png_())).width > 300


class Pictures(torch.utils.data.Dataset):
    """As torchvision's are."""

    classes = ("zebra", "ant")

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 24

    def __getitem__(self, i):
        pixels = np.full((8, 8), 40 if i % 2 else 200, dtype=np.uint8)
        pixels[i % 8] = i
        return self.transform(pixels), i % 2


ITEMS = Pictures(Image.fromarray)
X = np.stack([np.asarray(ITEMS[i][0]) for i in range(24)])
Y = np.arange(24) % 2


@pytest.mark.parametrize(
    ("data", "classes"),
    [
        ((X, Y), ("0", "1")),
        ((torch.as_tensor(X), Y.tolist()), ("0", "1")),
        ({"x": X.astype(np.float32) / 127.5 - 1, "y": np.array(["b", "a"])[Y]}, ("a", "b")),
        ({"x": X[:16], "y": Y[:16], "x_test": X[16:], "y_test": Y[16:]}, ("0", "1")),
        (ITEMS, ("zebra", "ant")),
        (Pictures(lambda p: torch.as_tensor(p)[None].float() / 255), ("zebra", "ant")),
        (torch.utils.data.TensorDataset(torch.as_tensor(X)[:, None], torch.as_tensor(Y)), ("0", "1")),
    ],
    ids=["arrays", "tensors", "names", "with a test split", "pictures", "ToTensor", "TensorDataset"],
)
def test_data_in_memory(tmp_path, data, classes):
    """The run finds it again after being moved, evaluates on it, and the same call resumes."""
    small = {"score.width": 8, "classifier.width": 8}
    run = selfcal.train(data, "cg", "4/class", tmp_path / "r", steps=2, settings=small)
    assert run.classes == classes
    assert run.data.x.min() == -1 or run.data.x.min() < 0
    selfcal.train(data, "cg", "4/class", tmp_path / "r", steps=2, settings=small)
    (tmp_path / "r").rename(tmp_path / "moved")
    again = selfcal.load(tmp_path / "moved")
    assert torch.equal(again.data.x, run.data.x)
    assert again.classes == classes
    assert torch.equal(again.pool.y, run.pool.y)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1, 2], "data is a list; give a name, a path"),
        ({"images": X}, "data has 'images'; known: x, y"),
        ({"y": Y}, "data has no 'x'"),
        ((X, Y[:3]), "expected one label per example"),
        (torch.utils.data.TensorDataset(torch.zeros(0, 1, 8, 8), torch.zeros(0)), "is empty"),
        (3, "data is a int"),
    ],
)
def test_data_that_is_none(tmp_path, data, message):
    with pytest.raises(SelfcalError, match=message):
        selfcal.train(data, "cg", "4/class", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_progress_is_shown_in_notebooks(monkeypatch):
    assert not progress.wanted(None)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert progress.wanted(None)
    assert not progress.wanted(False)
    terminal = type("TerminalInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: terminal))
    assert not progress.wanted(None)


OUTSIDE = """
import numpy
import selfcal

run: selfcal.Run = selfcal.train("digits", method="cg", labels="4/class", out="r", show_progress=True)
images: selfcal.Samples = run.sample(classes="3,5", count=4)
one: selfcal.Samples = images[0]
names: list[str] = run.predict(images)
array: numpy.ndarray = images.numpy()
again: selfcal.Run = selfcal.load("r")
adopted: selfcal.Run = selfcal.adopt("folder", "digits", "4/class", predicts="v", betas=[0.1, 0.2])
rows: int = len(run.history())
try:
    run.sample(classes=3)
except selfcal.SelfcalError as error:
    print(str(error))
"""
QUICK = """
[mypy]
follow_imports = silent
[mypy-torch.*,accelerate.*,sklearn.*,scipy.*,diffusers.*,matplotlib.*,pydantic.*,rich.*]
follow_imports = skip
ignore_missing_imports = true
"""
MISTAKES = """
import selfcal

run = selfcal.load("r")
run.sample(count="many")
run.smaple()
"""


def test_types_as_somebody_outside_sees_them(tmp_path):
    """mypy --strict on a user's script, which knows selfcal by its py.typed alone; and it sees mistakes."""
    for name, text in (("right.py", OUTSIDE), ("wrong.py", MISTAKES), ("mypy.ini", QUICK)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "right.py", "wrong.py"]
    environment = {"MYPYPATH": str(Path(selfcal.__file__).parents[1]), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    found = re.findall(r"^(\w+)\.py:\d+: error: .*\[([\w-]+)\]$", done.stdout, flags=re.MULTILINE)
    assert found == [("wrong", "arg-type"), ("wrong", "attr-defined")], done.stdout + done.stderr


def test_public_names_have_an_example_each():
    assert (Path(selfcal.__file__).parent / "py.typed").exists()
    for name in ("train", "adopt", "load", "Run", "Samples"):
        assert re.search(r"^ +\w+ = (selfcal|run)\.", getattr(selfcal, name).__doc__, flags=re.MULTILINE), name
    assert set(selfcal.__all__) <= set(dir(selfcal))
