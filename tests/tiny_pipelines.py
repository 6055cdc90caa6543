"""Pipelines of diffusers small enough to be saved, spoiled and trained by the dozen."""

from __future__ import annotations

import json

import pytest
import torch

from selfcal.data.sources import load_data

diffusers = pytest.importorskip("diffusers")

GUIDE = {"classifier.width": 64, "classifier.steps": 300}  # enough to obey


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


def save_trained(path, steps=150):
    """A tiny DDPM of digits, trained and saved with diffusers alone."""
    torch.manual_seed(0)
    x, net, scheduler = load_data("digits").x, tiny_unet(width=16), diffusers.DDPMScheduler()
    optimiser = torch.optim.Adam(net.parameters())
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 4e-3 * (1 - step / steps)
        x0 = x[torch.randint(len(x), (32,))]
        z, t = torch.randn_like(x0), torch.randint(1000, (32,))
        loss = (net(scheduler.add_noise(x0, z, t), t).sample - z).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    diffusers.DDPMPipeline(net, scheduler).save_pretrained(path)
    return path


def rewrite(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
