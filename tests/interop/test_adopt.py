"""Models trained with diffusers and score_sde become class-conditional: only their guide is trained."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

import selfcal
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.core.files import file_sha256
from selfcal.evaluation import features
from selfcal.interop.adopt import open_source
from selfcal.methods.table import METHODS
from selfcal.metrics import generation_accuracy
from tiny_pipelines import GUIDE, rewrite

TINY = Path(__file__).parent / "vectors" / "ncsnpp_tiny.safetensors"


def test_an_adopted_model_obeys_its_guide(adopted):
    samples = selfcal.load(adopted.path).sample(count=200, scale=2.0)
    judge = features.find("auto", adopted.data)
    accuracy = generation_accuracy(judge.classify(samples.x), samples.y)
    assert accuracy > 0.2, "twice chance"


def test_adopting_again_finds_it_finished(adopted, trained):
    before = (adopted.path / "log.jsonl").read_text()
    assert selfcal.adopt(trained, "digits", "4/class", "cg", adopted.path, settings=GUIDE).path == adopted.path
    assert (adopted.path / "log.jsonl").read_text() == before


@pytest.mark.parametrize("method", [name for name in METHODS if name.startswith("cg")])
def test_every_classifier_guidance_method_adopts(trained, tmp_path, method):
    small = {"classifier.batch": 8, "terms.jem_steps": 2}
    run = selfcal.adopt(trained, "digits", "4/class", method, tmp_path / "r", steps=2, settings=small, guide_on="score")
    assert run.sample(count=2, steps=2).x.isfinite().all()


def test_adopt_and_show_say_what_was_adopted(trained, tmp_path, capsys):
    out = tmp_path / "r"
    small = ["--set", "classifier.width=8", "--labels", "4/class", "--steps", "2", "--out", str(out)]
    with pytest.raises(SystemExit) as stop:
        cli.main(["adopt", str(trained), "--data", "digits", *small])
    assert not stop.value.code
    told = " ".join(capsys.readouterr().err.split())
    assert "UNet2DModel that predicts epsilon, DDPMScheduler, agrees with diffusers' own denoising to" in told
    assert "σ from 0.02 to 10" in told
    with pytest.raises(SystemExit):
        cli.main(["show", str(out)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "adopted: UNet2DModel that predicts epsilon" in printed
    assert "multipliers" not in printed.split("adopted:")[1].split("classifier")[0]


def test_an_adopted_model_is_taken_as_it_is(trained, tmp_path):
    with pytest.raises(SelfcalError, match=r"score\.width cannot be set"):
        selfcal.adopt(trained, "digits", "4/class", "cg", tmp_path / "r", settings=["score.width=8"])
    assert not (tmp_path / "r").exists()


def test_score_sde_checkpoints_are_adopted(tmp_path, monkeypatch):
    """Channels must fit; the network comes back from the run as it was. Its weights are random, which is noticed."""
    with pytest.raises(SelfcalError, match="3 channels, digits has 1"):
        selfcal.adopt(TINY, "digits", "4/class", out=tmp_path / "r")
    colours = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "c.npz", x=colours, y=np.arange(40) % 2)
    with pytest.raises(SelfcalError, match="does not denoise as given: at σ"):
        selfcal.adopt(TINY, tmp_path / "c.npz", "4/class", "cg", tmp_path / "r")
    monkeypatch.setattr("selfcal.interop.adopt.check_as_it_is", lambda *given: "denoises as well as may be")
    run = selfcal.adopt(
        TINY, tmp_path / "c.npz", "4/class", "cg", tmp_path / "r", steps=2, settings=["classifier.width=8"]
    )
    assert (run.noise.sigma_min, run.noise.sigma_max) == pytest.approx((0.02, 100.0))
    x, sigma = torch.randn(2, 3, 8, 8), torch.tensor([0.1, 3.0])
    expected = open_source(TINY, run.data).model(x, sigma)
    torch.testing.assert_close(selfcal.load(run.path).networks["score"](x, sigma), expected)


def test_adopt_as_typed_and_its_refusals(capsys, trained, tmp_path):
    def typed(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out + captured.err

    code, said = typed("adopt", trained, "--data", "digits", "--labels", "4/class", "--method", "cg", "--steps", 2,
                       "--out", tmp_path / "r", "--set", "classifier.width=8")  # fmt: skip
    assert code == 0, said
    assert "is finished" in said
    for arguments, message in (
        (("--data", "digits", "--method", "cond"), "no unconditional score model"),
        (("--data", "moons"), "holds points"),
        (("--data", "digits", "--set", "noise.sigma_min=500", "--set", "noise.sigma_max=900"), "knows σ from"),
        (("--data", "digits", "--set", "classifier.network=adopted"), "an adopted network is a score model"),
    ):
        code, said = typed("adopt", trained, *arguments, "--out", tmp_path / "no")
        assert code == 2
        assert message in " ".join(said.split())
        assert not (tmp_path / "no").exists()
    for source, message in (
        ("my_package:make_net", "A module of your own is adopted in Python"),
        (trained / "unet" / "diffusion_pytorch_model.safetensors", f"give its folder: {trained / 'unet'}"),
    ):
        code, said = typed("adopt", source, "--data", "digits", "--out", tmp_path / "no")
        assert code == 2
        assert message in " ".join(said.split())
    shutil.copytree(trained, tmp_path / "big")
    rewrite(tmp_path / "big" / "unet" / "config.json", sample_size=16)
    code, said = typed("adopt", tmp_path / "big", "--data", "digits", "--out", tmp_path / "no")
    assert "makes images shaped (1, 16, 16), digits has (1, 8, 8)" in " ".join(said.split())


def test_an_adopted_model_goes_straight_into_its_run(trained, tmp_path, monkeypatch):
    """No run is made up elsewhere to take it from; its hash is that of the weights that were written."""
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *a, **k: pytest.fail("a temporary folder was asked for"))
    small = {"classifier.width": 8}
    run = selfcal.adopt(trained, "digits", "4/class", "cg", tmp_path / "r", steps=2, settings=small)
    (step,) = (run.path / "checkpoints" / "score").iterdir()
    assert run.config["score_from"] == file_sha256(step / "ema.safetensors")
    assert run.config["score_from"] == run.describe()["weights_sha256"]["score"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r", "tmp"]
    assert not list(elsewhere.iterdir())
    assert not [line for line in (run.path / "log.jsonl").read_text().splitlines() if '"score"' in line]


def test_adopt_tells_on_step_too(trained, tmp_path):
    calls, small = [], {"classifier.width": 8, "run.log_every": 1}
    selfcal.adopt(
        trained, "digits", "4/class", "cg", tmp_path / "r", steps=3, settings=small, on_step=lambda *c: calls.append(c)
    )
    assert [(network, step) for network, step, _ in calls] == [("classifier", 1), ("classifier", 2), ("classifier", 3)]
