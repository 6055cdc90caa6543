"""A model trained with diffusers alone, and a run that adopted it."""

from __future__ import annotations

import pytest
import torch

import selfcal
from selfcal.data.sources import load_data


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A tiny DDPM, trained and saved with diffusers alone."""
    from tiny_pipelines import diffusers, tiny_unet  # here: it skips where there is no diffusers

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


@pytest.fixture(scope="session")
def adopted(trained, tmp_path_factory):
    from tiny_pipelines import GUIDE

    out = tmp_path_factory.mktemp("adopted") / "run"
    return selfcal.adopt(trained, "digits", "4/class", "cg", out, settings=GUIDE)
