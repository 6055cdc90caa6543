"""A training step of our score network against diffusers' U-Net of equal size and the original's layers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from diffusers import UNet2DModel
from torch import Tensor, nn

from layer_list import same_network
from selfcal.nets.blocks import spread_evenly
from selfcal.nets.ncsnpp import NCSNpp

SMALL = {"channels": 3, "width": 24, "multipliers": (1, 2, 4), "blocks": 1, "attention": (2,), "dropout": 0.0}
PAPER = {"channels": 3, "width": 128, "multipliers": (1, 2, 2, 2), "blocks": 4, "attention": (1,), "dropout": 0.1}
GROUPS = 4  # of channels in diffusers' normalisation; its widths are multiples
SIZES = {"photos32": (SMALL, 32, 24), "the paper's": (PAPER, 2, 5)}
"""By name: the network, its batch, and how often a step of each is timed."""


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def peer(wanted: int, keywords: Mapping[str, Any]) -> UNet2DModel:
    """diffusers' U-Net with as many parameters: the same levels, blocks and attention, as wide as that takes."""

    *outer, last = keywords["multipliers"]
    attends = [level in keywords["attention"] for level in range(len(outer) + 1)]

    def made(width: int, innermost: int) -> UNet2DModel:
        return UNet2DModel(
            sample_size=32,
            block_out_channels=[*(width * m for m in outer), innermost],
            layers_per_block=keywords["blocks"],
            down_block_types=["AttnDownBlock2D" if a else "DownBlock2D" for a in attends],
            up_block_types=["AttnUpBlock2D" if a else "UpBlock2D" for a in reversed(attends)],
            norm_num_groups=GROUPS,
            attention_head_dim=None,
            dropout=keywords["dropout"],
        )

    def far(widths: tuple[int, int]) -> int:
        with torch.device("meta"):
            return abs(size(made(*widths)) - wanted)

    width = min(range(GROUPS, 200, GROUPS), key=lambda w: far((w, w * last)))
    innermost = range((width - GROUPS) * last, (width + GROUPS) * last, GROUPS)
    return made(*min(((width, i) for i in innermost if i), key=far))


def step_of(network: nn.Module, batch: int) -> Callable[[], None]:
    """Denoising, its gradient, Adam; the same for each."""
    adam = torch.optim.Adam(network.parameters(), lr=1e-4)
    x, sigma = torch.randn(batch, 3, 32, 32), torch.rand(batch) + 0.1

    def step() -> None:
        adam.zero_grad()
        out = network(x, sigma)
        found: Tensor = out if isinstance(out, Tensor) else out.sample
        (found - x).square().mean().backward()
        adam.step()

    return step


def score_steps(name: str) -> tuple[dict[str, float], dict[str, int]]:
    """(seconds of our step over each rival's, parameters): medians of steps in turn, one thread's processor time."""
    keywords, batch, rounds = SIZES[name]
    torch.manual_seed(0)
    ours = NCSNpp(**keywords)
    for layer in ours.modules():  # as after some training: none of its layers is nearly zero
        if isinstance(layer, nn.Conv2d | nn.Linear):
            spread_evenly(layer)
    networks = {"ours": ours, "layers": same_network(ours, **keywords), "diffusers": peer(size(ours), keywords)}
    steps = {rival: step_of(network, batch) for rival, network in networks.items()}
    times: dict[str, list[float]] = {rival: [] for rival in steps}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for i in range(rounds + 2):
        for rival, step in steps.items():
            began = time.process_time()
            step()
            if i >= 2:
                times[rival].append(time.process_time() - began)
    torch.set_num_threads(threads)
    seconds = {rival: statistics.median(t) for rival, t in times.items()}
    ratios = {rival: seconds["ours"] / seconds[rival] for rival in ("diffusers", "layers")}
    return ratios, {rival: size(network) for rival, network in networks.items()}


if __name__ == "__main__":
    for which in SIZES:
        print(which, *score_steps(which), flush=True)
