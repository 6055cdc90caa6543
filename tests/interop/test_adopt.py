"""Models trained with diffusers and score_sde: adopted, guided, exported, and loaded without selfcal."""

from __future__ import annotations

import ast
import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import selfcal
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.core.randomness import random_state
from selfcal.data import load_data
from selfcal.evaluation import features
from selfcal.interop import diffusers as ours
from selfcal.interop import schedulers
from selfcal.interop.adopt import open_source
from selfcal.interop.export import portable_source
from selfcal.methods.table import METHODS
from selfcal.metrics import generation_accuracy
from selfcal.nets.foreign import Clean, EDMEpsilon, EDMVelocity, Epsilon, UnitScore, Velocity
from selfcal.nets.forms import ScoreModel

diffusers = pytest.importorskip("diffusers")
TINY = Path(__file__).parent / "vectors" / "ncsnpp_tiny.safetensors"


def tiny_unet(size=8, channels=1, width=8, **changes):
    return diffusers.UNet2DModel(
        sample_size=size,
        in_channels=channels,
        out_channels=channels,
        layers_per_block=1,
        block_out_channels=(width, 2 * width),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        **changes,
    )


def save(path, scheduler, **changes):
    diffusers.DDPMPipeline(tiny_unet(**changes), diffusers.DDPMScheduler()).save_pretrained(path)
    scheduler.save_pretrained(path / "scheduler")
    return path


# --- the mathematics: exact networks of Gaussian data must give its exact score ------------------------


class Exact(nn.Module):
    """F of a form for data N(0, s²), told as the form tells it: inverted from D = s² x/(s² + σ²)."""

    def __init__(self, form, sigma, s=0.7):
        super().__init__()
        self.form, self.sigma, self.s = form, sigma, s

    def forward(self, x, level):
        c = self.form(self.sigma[:, None])
        torch.testing.assert_close(level, c.noise.flatten())
        noisy = x * c.shrink
        return (self.s**2 / (self.s**2 + self.sigma[:, None] ** 2) * noisy - c.skip * noisy) / c.out


LADDER = tuple(torch.linspace(-4, 5, 1000).exp().tolist())


@pytest.mark.parametrize(
    "form", [Epsilon(LADDER), Velocity(LADDER), Clean(LADDER), EDMEpsilon(), EDMVelocity(), UnitScore()]
)
def test_every_form_gives_the_exact_score(form):
    sigma = torch.tensor([0.05, 0.5, 3.0, 50.0], dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(ScoreModel(Exact(form, sigma), form)(x, sigma), -x / (0.49 + sigma[:, None] ** 2))


def test_what_ddpm_networks_predict():
    """From x₀ and z themselves: the noise, the velocity, the image."""
    x0, z, sigma = (
        torch.randn(3, 5, dtype=torch.float64),
        torch.randn(3, 5, dtype=torch.float64),
        torch.tensor([0.1, 1, 9.0]).double(),
    )
    s = sigma[:, None]
    root_alpha = 1 / (1 + s**2).sqrt()
    velocity = root_alpha * z - s * root_alpha * x0
    for form, predicted in ((Epsilon(LADDER), z), (Velocity(LADDER), velocity), (Clean(LADDER), x0)):
        c = form(s)
        x = x0 + s * z
        torch.testing.assert_close(x / c.shrink, root_alpha * x0 + s * root_alpha * z)
        torch.testing.assert_close(c.skip * x + c.out * predicted, x0)


def test_levels_between_two_numbers_are_fractions():
    form = Epsilon((0.1, 1.0, 10.0))
    sigma = torch.tensor([0.01, 0.1, math.sqrt(0.1), 1.0, 10.0, 99.0])
    torch.testing.assert_close(form.number(sigma), torch.tensor([0.0, 0.0, 0.5, 1.0, 2.0, 2.0]))


# --- reading pipelines --------------------------------------------------------------------------------


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid"])
def test_ddpm_pipelines_denoise_as_diffusers_does(tmp_path, prediction, schedule):
    scheduler = diffusers.DDPMScheduler(prediction_type=prediction, beta_schedule=schedule)
    pipeline = ours.load(save(tmp_path, scheduler))  # compares with diffusers' own denoising, or refuses
    assert pipeline.shape == (1, 8, 8)
    assert pipeline.sigma_max > 10


@pytest.mark.parametrize(
    "scheduler",
    [
        diffusers.DDIMScheduler(),
        diffusers.DPMSolverMultistepScheduler(prediction_type="v_prediction"),
        diffusers.EulerDiscreteScheduler(beta_schedule="scaled_linear"),
        diffusers.EulerAncestralDiscreteScheduler(prediction_type="v_prediction"),
        diffusers.EulerDiscreteScheduler(use_karras_sigmas=True),
        diffusers.LMSDiscreteScheduler(),
        diffusers.HeunDiscreteScheduler(),
        diffusers.DDPMScheduler(rescale_betas_zero_snr=True, prediction_type="v_prediction"),
        diffusers.EDMEulerScheduler(),
        diffusers.EDMEulerScheduler(prediction_type="v_prediction", sigma_data=0.7),
    ],
    ids=lambda s: f"{type(s).__name__}-{s.config.prediction_type}",
)
def test_other_schedulers(tmp_path, scheduler):
    assert ours.load(save(tmp_path, scheduler)).sigma_min > 0


def test_keywords_of_other_versions_are_passed_over(tmp_path):
    path = save(tmp_path, diffusers.DDPMScheduler())
    rewrite(path / "unet" / "config.json", a_keyword_to_come=1)
    assert "a_keyword_to_come" not in ours.load(path).adopted["unet"]


def test_variance_exploding_pipelines(tmp_path):
    """Their data lies in [0, 1] and their network is divided by σ."""
    path = save(tmp_path, diffusers.ScoreSdeVeScheduler(sigma_max=50.0), time_embedding_type="fourier")
    pipeline = ours.load(path)
    assert (pipeline.sigma_min, pipeline.sigma_max) == (0.02, 100.0)
    x, sigma = torch.rand(2, 1, 8, 8), torch.tensor([0.3, 4.0])
    theirs = diffusers.UNet2DModel.from_pretrained(path / "unet")(x, sigma).sample
    torch.testing.assert_close(pipeline.model(2 * x - 1, 2 * sigma), theirs / 2, rtol=1e-4, atol=1e-5)


def test_a_misread_model_is_noticed_before_training(tmp_path, monkeypatch):
    path = save(tmp_path, diffusers.DDPMScheduler())
    monkeypatch.setattr(
        ours, "form_recipe", lambda adopted: ("sample", {"sigmas": tuple(schedulers.ladder(adopted["scheduler"]))})
    )
    with pytest.raises(SelfcalError, match="its own denoising and selfcal's differ"):
        ours.load(path)


def rewrite(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def reschedule(path, **changes):
    rewrite(path / "scheduler" / "scheduler_config.json", **changes)


def change_weights(path, change):
    file = path / "unet" / "diffusion_pytorch_model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: rewrite(p / "model_index.json", vae=["diffusers", "AutoencoderKL"]), "latent space of its vae"),
        (lambda p: rewrite(p / "model_index.json", text_encoder=["t", "T"]), "guided by text"),
        (lambda p: (p / "model_index.json").unlink(), "is not a diffusers pipeline"),
        (lambda p: (p / "model_index.json").write_text("[1]"), "not a configuration"),
        (lambda p: (p / "model_index.json").write_text("{"), "cannot be read"),
        (lambda p: (p / "model_index.json").write_text("{}"), "no unet and scheduler"),
        (
            lambda p: rewrite(p / "unet" / "config.json", _class_name="UNet2DConditionModel"),
            "is a UNet2DConditionModel",
        ),
        (lambda p: rewrite(p / "unet" / "config.json", num_class_embeds=10), "class-conditional already"),
        (lambda p: rewrite(p / "unet" / "config.json", out_channels=2), "a learned variance"),
        (lambda p: rewrite(p / "unet" / "config.json", sample_size=None), "sample_size"),
        (
            lambda p: rewrite(p / "scheduler" / "scheduler_config.json", _class_name="FlowMatchEulerDiscreteScheduler"),
            "scheduler FlowMatchEulerDiscreteScheduler cannot be adopted",
        ),
        (lambda p: rewrite(p / "scheduler" / "scheduler_config.json", prediction_type="flow"), "predicts 'flow'"),
        (
            lambda p: (p / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"half"),
            "asks for .* weights, but its safetensors files hold 4 bytes",
        ),
        (
            lambda p: (p / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"half" * 10**5),
            "cannot be loaded",
        ),
        (
            lambda p: (p / "unet" / "diffusion_pytorch_model.safetensors").rename(
                p / "unet" / "diffusion_pytorch_model.bin"
            ),
            "has no safetensors file",
        ),
        (lambda p: change_weights(p, lambda w: w.pop("conv_in.bias")), "incomplete: conv_in.bias is missing"),
        (lambda p: change_weights(p, lambda w: w["conv_in.bias"].fill_(math.nan)), "holds NaN"),
        (lambda p: change_weights(p, lambda w: w.update({"conv_in.bias": torch.zeros(9)})), "cannot be loaded"),
        (lambda p: rewrite(p / "model_index.json", transformer=["t", "T"]), "meaning selfcal does not know"),
        (lambda p: rewrite(p / "unet" / "config.json", block_out_channels=[40_000, 40_000]), "asks for .* weights"),
        (lambda p: rewrite(p / "unet" / "config.json", block_out_channels="8"), "does not describe a model"),
        (lambda p: rewrite(p / "unet" / "config.json", sample_size=100_000), "does not describe a model"),
        (lambda p: rewrite(p / "unet" / "config.json", sample_size="8"), "does not describe a model"),
        (lambda p: rewrite(p / "unet" / "config.json", norm_num_groups=7), "does not describe a model"),
        (lambda p: reschedule(p, num_train_timesteps=10**10), "num_train_timesteps = 10000000000"),
        (lambda p: reschedule(p, num_train_timesteps=1), "num_train_timesteps = 1"),
        (lambda p: reschedule(p, beta_start="small"), "does not describe a model"),
        (lambda p: reschedule(p, beta_schedule="zigzag"), "does not describe a model"),
        (lambda p: reschedule(p, _class_name=["a", "b"]), "cannot be adopted"),
        (lambda p: reschedule(p, _class_name="EDMEulerScheduler"), "'sigma_m.*is missing"),
        (
            lambda p: reschedule(
                p, _class_name="EulerDiscreteScheduler", timestep_type="continuous", prediction_type="v_prediction"
            ),
            "its EulerDiscreteScheduler is not understood",
        ),
    ],
)
def test_pipelines_that_cannot_be_represented(tmp_path, spoil, message):
    path = save(tmp_path, diffusers.DDPMScheduler())
    spoil(path)
    with pytest.raises(SelfcalError, match=message):
        ours.load(path)


# --- adopt, sample, export ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny DDPM, trained and saved with diffusers alone."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, net, scheduler = load_data("digits").x, tiny_unet(width=16), diffusers.DDPMScheduler()
    steps = 150
    optimiser = torch.optim.Adam(net.parameters())
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 4e-3 * (1 - step / steps)
        x0 = x[torch.randint(len(x), (32,))]
        z, t = torch.randn_like(x0), torch.randint(1000, (32,))
        loss = (net(scheduler.add_noise(x0, z, t), t).sample - z).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    path = tmp_path_factory.mktemp("ddpm")
    diffusers.DDPMPipeline(net, scheduler).save_pretrained(path)
    return path


GUIDE = {"classifier.width": 64, "classifier.steps": 300}


@pytest.fixture(scope="module")
def adopted(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("adopted") / "run"
    return selfcal.adopt(trained, "digits", "4/class", "cg", out, settings=GUIDE)


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
    small = {"classifier.width": 8, "terms.jem_steps": 2}
    run = selfcal.adopt(trained, "digits", "4/class", method, tmp_path / "r", steps=2, settings=small)
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


PLAIN = """
import sys
sys.modules["selfcal"] = None
import torch
from diffusers import DiffusionPipeline
pipe = DiffusionPipeline.from_pretrained(sys.argv[1], trust_remote_code=True)
labels = ["3"] * 4 + [5] * 4
made = [pipe(class_labels=labels, guidance_scale=2.0, generator=torch.Generator().manual_seed(int(sys.argv[2])),
             output_type=kind).images for kind in ("pt", "pil")]
assert made[1][0].size == (8, 8)
torch.save(made[0], sys.argv[3])
again = pipe(class_labels=torch.tensor([3] * 4 + [5] * 4), guidance_scale=2.0, output_type="pt",
             generator=torch.Generator().manual_seed(int(sys.argv[2]))).images
assert torch.equal(again, made[0])
one = {"class_labels": 3}
for wrong in ({"class_labels": "nine"}, {"class_labels": []}, one | {"num_inference_steps": 0},
              one | {"guidance_scale": float("nan")}, one | {"output_type": "jpeg"},
              one | {"generator": [torch.Generator()]}):
    try:
        pipe(**wrong)
    except ValueError as error:
        print(error)
    else:
        raise SystemExit(f"{wrong} is accepted")
pipe.to(torch.float64)
assert pipe(class_labels=3, num_inference_steps=2).images[0].size == (8, 8)
"""


def test_the_export_samples_alike_without_selfcal(adopted, tmp_path):
    with pytest.raises(SystemExit):
        cli.main(["export", str(adopted.path), "--out", str(tmp_path / "pipe")])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PLAIN,
            tmp_path / "pipe",
            str(random_state(0, "sampling", 0).initial_seed()),
            tmp_path / "x.pt",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Expected types" not in done.stderr
    assert "unknown class 'nine'; this model has 0, 1" in done.stdout
    mine = adopted.sample(classes=[3, 5], count=8, scale=2.0).x
    torch.testing.assert_close(torch.load(tmp_path / "x.pt"), (mine + 1) / 2, rtol=0, atol=1e-4)
    with pytest.raises(SystemExit) as stop:
        cli.main(["export", str(adopted.path), "--out", str(tmp_path / "pipe")])
    assert stop.value.code == 2


def test_the_exported_code_defines_every_name_once():
    tree = ast.parse(portable_source())
    names = Counter(n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == ["find"], "nothing there looks anything up by it"
    assert "selfcal" not in {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}


@pytest.mark.parametrize("network", ["mlp", "ncsnpp"])
def test_networks_of_ones_own_are_exported_too(tmp_path, network):
    small = {
        f"{role}.{k}": v
        for role in ("score", "classifier", "conditional")
        for k, v in {"network": network, "width": 8, "blocks": 1, "multipliers": (1, 2)}.items()
    }
    run = selfcal.train("digits", "cfg-all", "2/class", tmp_path / "r", steps=2, settings=small)
    with pytest.raises(SystemExit):
        cli.main(["export", str(run.path), "--out", str(tmp_path / "p")])
    index = json.loads((tmp_path / "p" / "model_index.json").read_text())
    assert index["score"] == [None, None]
    assert index["conditional"][1] == "SelfcalScore"


def test_score_sde_checkpoints_are_adopted(tmp_path):
    """Channels must fit; the network comes back from the run as it was."""
    with pytest.raises(SelfcalError, match="3 channels, digits has 1"):
        selfcal.adopt(TINY, "digits", "4/class", out=tmp_path / "r")
    colours = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "c.npz", x=colours, y=np.arange(40) % 2)
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
    shutil.copytree(trained, tmp_path / "big")
    rewrite(tmp_path / "big" / "unet" / "config.json", sample_size=16)
    code, said = typed("adopt", tmp_path / "big", "--data", "digits", "--out", tmp_path / "no")
    assert "makes images shaped (1, 16, 16), digits has (1, 8, 8)" in " ".join(said.split())
