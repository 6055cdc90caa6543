"""A diffusion model as people write them who have never heard of selfcal: DDPM, ε, linear β, t as an index."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).parent / "interop" / "vectors" / "plain_ddpm.safetensors"
LEVELS = 1000
BETAS = torch.linspace(1e-4, 0.02, LEVELS)


class Mixing(nn.Module):
    """Pixels mixed by a linear layer in every channel, then channels in every pixel, shifted by t."""

    def __init__(self, pixels: int, channels: int, embedding: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.across = nn.Linear(pixels, pixels)
        self.shift = nn.Linear(embedding, channels)
        self.widen = nn.Linear(channels, 2 * channels)
        self.narrow = nn.Linear(2 * channels, channels)

    def forward(self, h: Tensor, e: Tensor) -> Tensor:  # (B, pixels, channels)
        h = h + self.across((self.norm(h) + self.shift(e)[:, None]).transpose(1, 2)).transpose(1, 2)
        return h + self.narrow(F.gelu(self.widen(h)))


class PlainDDPM(nn.Module):
    """An MLP-Mixer of single pixels: predicts the noise in x_t = √ᾱ x₀ + √(1−ᾱ) z from x_t and t = 0 … 999."""

    def __init__(self, side: int = 8, channels: int = 32, depth: int = 4, embedding: int = 64) -> None:
        super().__init__()
        self.frequencies = nn.Buffer(torch.exp(torch.linspace(0, -math.log(10_000), embedding // 2)))
        self.enter = nn.Linear(1, channels)
        self.place = nn.Parameter(0.02 * torch.randn(side * side, channels))
        self.blocks = nn.ModuleList(Mixing(side * side, channels, embedding) for _ in range(depth))
        self.leave = nn.Linear(channels, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angles = t.float()[:, None] * self.frequencies
        e = torch.cat([angles.sin(), angles.cos()], 1)
        h = self.enter(x.flatten(1)[..., None]) + self.place
        for block in self.blocks:
            h = block(h, e)
        return self.leave(h).view_as(x)


def train_ddpm(x: Tensor, steps: int = 5000, batch: int = 64, lr: float = 2e-3) -> nn.Module:
    """As in Ho et al. 2020, with the weights' average."""
    torch.manual_seed(0)
    net = PlainDDPM(side=x.shape[-1])
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995))
    optimiser = torch.optim.Adam(net.parameters(), lr)
    kept = (1 - BETAS).cumprod(0)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = lr * (1 - step / steps)
        x0 = x[torch.randint(len(x), (batch,))]
        t, z = torch.randint(LEVELS, (batch,)), torch.randn_like(x0)
        a = kept[t][:, None, None, None]
        loss = F.mse_loss(net(a.sqrt() * x0 + (1 - a).sqrt() * z, t), z)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        average.update_parameters(net)
    return average.module.eval()


def trained() -> nn.Module:
    """With the weights beside this file; `python tests/plain_ddpm.py` makes them, in about a minute."""
    net = PlainDDPM()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


if __name__ == "__main__":
    from selfcal.data.sources import load_data

    torch.set_num_threads(1)
    save_file(train_ddpm(load_data("digits").x).state_dict(), WEIGHTS)
