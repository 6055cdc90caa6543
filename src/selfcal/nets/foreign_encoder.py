"""The way down of an adopted UNet2DModel as the encoder of a classifier: its guide stands on what it already knows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from selfcal.diffusion.scores import like
from selfcal.nets.foreign import foreign_form
from selfcal.nets.foreign_schedules import form_keywords, network_keywords

PARTS = ("conv_in", "time_proj", "time_embedding", "down_blocks", "mid_block")
"""What the way down consists of, by the names of its weights."""


class AdoptedEncoder(nn.Module):
    """(B, C, H, W), (B,) -> each resolution's last features, the innermost, what is known of σ: as `Encoder` does.

    A classifier hands on c_in x; the adopted network wants x in its own scale, and σ in its own numbers.
    """

    def __init__(self, adopted: Mapping[str, Any]) -> None:
        super().__init__()
        from diffusers import UNet2DModel  # only those who adopt a model need it
        from diffusers.models.attention_processor import AttnProcessor

        keywords = network_keywords(adopted)
        self.form = foreign_form(**form_keywords(adopted))
        self.sigma_data: float = adopted["sigma_data"]
        self.unit_interval: bool = keywords["unit_interval"]
        self.unet: Any = UNet2DModel(**keywords["config"])
        del self.unet.up_blocks, self.unet.conv_norm_out, self.unet.conv_out
        for module in self.unet.modules():
            if hasattr(module, "set_processor"):
                module.set_processor(AttnProcessor())  # written out: fused kernels have no second derivative
        self.widths: list[int] = list(self.unet.config.block_out_channels)
        self.ends = list(range(len(self.widths)))
        self.embedding: int = self.unet.time_embedding.linear_2.out_features

    def forward(self, x: Tensor, sigma: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        x = x * (like(sigma, x) ** 2 + self.sigma_data**2).sqrt()
        c = self.form(like(sigma, x))
        x = x / c.shrink
        h = self.unet.conv_in((x + 1) / 2 if self.unit_interval else x)
        known = self.unet.time_embedding(self.unet.time_proj(c.noise.flatten()).to(h.dtype))
        features = []
        for block in self.unet.down_blocks:
            h, made = block(hidden_states=h, temb=known)
            features.append(made[-2] if block.downsamplers else made[-1])  # before it is halved
        return features, h if self.unet.mid_block is None else self.unet.mid_block(h, known), F.silu(known)


def quietened(head: Any, shape: Sequence[int]) -> nn.Module:
    """An energy head whose sums over pixels begin of order one: trained features are not as small as fresh ones."""
    levels = [*range(len(head.encoder.widths)), len(head.encoder.widths) - 1]
    at = 0
    for level in levels:
        width = head.encoder.widths[level]
        pixels = math.prod(max(1, side // 2**level) for side in shape[1:])
        nn.init.constant_(head.gain.bias[at : at + width], -0.5 * math.log(pixels))
        at += width
    made: nn.Module = head
    return made
