"""Pipelines of diffusers: read as diffusers reads them, or refused in one sentence."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from selfcal.core.errors import SelfcalError
from selfcal.interop import diffusers as ours
from selfcal.nets import foreign_schedules
from tiny_pipelines import diffusers, rewrite, save


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
    misread = {"predicts": "sample", "sigmas": foreign_schedules.ladder({})}
    monkeypatch.setattr(ours, "form_keywords", lambda adopted: misread)
    with pytest.raises(SelfcalError, match="its own denoising and selfcal's differ"):
        ours.load(path)


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
        (
            lambda p: [(p / "model_index.json").unlink(), (p / "unet" / "config.json").unlink()],
            "no model_index.json, and no",
        ),
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
            "not a checkpoint of plain tensors",
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
