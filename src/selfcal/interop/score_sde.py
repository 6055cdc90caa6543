"""Checkpoints of score_sde_pytorch (Song et al. 2021): NCSN++ trained on the variance-exploding process.

Their data lies in [0, 1], ours in [−1, 1]: s(2x − 1, 2σ) = s_original(x, σ)/2. Their network scales
its input to [−1, 1] itself and is divided by σ, so it is ours in the form `VE` (nets/forms.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.core.reading import read_tensors
from selfcal.interop.tensors import held, read_pickled
from selfcal.nets.blocks import Attention, HalvingConv, ResidualBlock
from selfcal.nets.builders import without_memory
from selfcal.nets.forms import VE, ScoreModel
from selfcal.nets.layers import FourierFeatures
from selfcal.nets.ncsnpp import NCSNpp

Weights = dict[str, Tensor]
IN_PYTHON = (
    "A module of your own is adopted in Python: selfcal.adopt(net, …, predicts=…, betas=…), see docs/adopting.md"
)


@dataclass(frozen=True)
class Checkpoint:
    """The score model, the keywords its architecture was recognised by, and its range of σ in our units."""

    model: ScoreModel
    channels: int
    architecture: dict[str, Any]
    sigma_min: float
    sigma_max: float


def load(path: str | Path) -> ScoreModel:
    """The score in our units, with averaged weights if the file has them."""
    return read(path).model


def read(path: str | Path) -> Checkpoint:
    """The whole checkpoint. No code in the file is ever run: only tensors and plain containers are admitted."""
    path = Path(path)
    weights = _read_weights(path)
    low, high = _noise_range(weights.pop("sigmas", torch.tensor([0.01, 50.0])), path)
    try:
        channels, architecture = infer(weights)
        network = without_memory(lambda: NCSNpp(channels, dropout=0.0, **architecture))
        assert isinstance(network, NCSNpp)
        network.load_state_dict(translated(weights, network), assign=True)
    except Exception as error:  # names and shapes of somebody else's making can fail anywhere
        raise SelfcalError(
            f"{path} is not the NCSN++ with Fourier features, BigGAN blocks and a residual input pyramid that selfcal "
            f"can adopt ({shorten(str(error), 160, placeholder=' …')})"
        ) from None
    for name, tensor in network.state_dict().items():
        if not tensor.isfinite().all():
            raise SelfcalError(f"{path} holds NaN or infinite weights, for instance in {name}")
    model = ScoreModel(network, VE()).eval().requires_grad_(False)
    return Checkpoint(model, channels, architecture, 2 * low, 2 * high)


def infer(weights: Weights) -> tuple[int, dict[str, Any]]:
    """The architecture from names and shapes: image channels, and the keywords of `NCSNpp`."""
    kinds = [_kind(part) for part in _modules(weights)]
    if kinds[:4] != ["fourier", "linear", "linear", "conv"]:
        raise ValueError(f"it begins with {', '.join(kinds[:4])}")
    width, channels = weights["all_modules.3.weight"].shape[:2]
    levels = 1 + kinds.count("pyramid")
    blocks = (kinds.count("block") - 3 * levels) / (2 * levels)  # of one level, on the way down
    if blocks < 1 or blocks != int(blocks):
        raise ValueError(f"{kinds.count('block')} residual blocks do not fill {levels} levels")
    multipliers, attention, at = [], [], 4
    for level in range(levels):
        multipliers.append(weights[f"all_modules.{at}.Conv_0.weight"].shape[0] // width)
        if kinds[at + 1] == "attention":
            attention.append(level)
        at += int(blocks) * (2 if level in attention else 1) + 2
    return channels, {"width": width, "multipliers": multipliers, "blocks": int(blocks), "attention": attention}


def translated(weights: Weights, network: NCSNpp) -> Weights:
    """Their weights under our names. Their modules are numbered, in the order of `_in_their_order`."""
    ours = {id(module): name for name, module in network.named_modules()}
    modules, places = _modules(weights), list(_in_their_order(network))
    if len(modules) != len(places):
        raise ValueError(f"it has {len(modules)} modules where {len(places)} are expected")
    content = {}
    for theirs, place in zip(modules, places, strict=True):
        for name, tensor in theirs.items():
            new, value = _renamed(place, name, tensor)
            content[f"{ours[id(place)]}.{new}"] = value.float().contiguous()
    return content


def _in_their_order(network: NCSNpp) -> Iterator[nn.Module]:
    encoder = network.encoder
    level: Any
    yield from (encoder.features, encoder.embed[0], encoder.embed[2], encoder.enter)
    for level in encoder.levels:
        for i, block in enumerate(level.blocks):
            yield block
            yield from level.attention[i : i + 1]
        if level.down is not None:
            yield from (level.down, level.pyramid)
    yield from encoder.middle
    for level in network.levels:
        yield from level.blocks
        yield from (part for part in (level.attention, level.up) if part is not None)
    yield from (network.norm, network.leave)


NAMES: dict[type, dict[str, str]] = {
    ResidualBlock: {
        "GroupNorm_0": "first_norm",
        "Conv_0": "first",
        "Dense_0": "shift",
        "GroupNorm_1": "second_norm",
        "Conv_1": "second",
        "Conv_2": "skip",
    },
    Attention: {"GroupNorm_0": "norm", "NIN_0": "query", "NIN_1": "key", "NIN_2": "value", "NIN_3": "leave"},
    HalvingConv: {"Conv2d_0": "conv"},
}


def _renamed(place: nn.Module, name: str, tensor: Tensor) -> tuple[str, Tensor]:
    if isinstance(place, FourierFeatures):
        return "frequencies", tensor * (2 * math.pi)  # we keep the 2π inside
    outer, _, inner = name.rpartition(".")
    if outer.startswith("NIN"):  # a matrix product with the transpose of what a linear layer holds
        inner, tensor = ("weight", tensor.T) if inner == "W" else ("bias", tensor)
    return (f"{NAMES[type(place)][outer]}.{inner}" if outer else inner), tensor


def _modules(weights: Weights) -> list[Weights]:
    """Their weights by module, in the order of its number."""
    parts: dict[int, Weights] = {}
    for name, tensor in weights.items():
        _, number, rest = name.split(".", 2)
        parts.setdefault(int(number), {})[rest] = tensor
    return [parts[number] for number in sorted(parts)]


def _kind(part: Weights) -> str:
    """What a numbered module is, told by the names and dimensions of its weights."""
    signs = {"W": "fourier", "NIN_0.W": "attention", "Conv2d_0.weight": "pyramid", "Dense_0.weight": "block"}
    for name, kind in signs.items():
        if name in part:
            return kind
    return {1: "norm", 2: "linear", 4: "conv"}[part["weight"].ndim]


def _read_weights(path: Path) -> Weights:
    """The `all_modules.…` tensors (and `sigmas`), averaged ones where the file has them."""
    if not path.is_file():
        raise SelfcalError(
            f"{path} does not exist; give a diffusers folder, a name on the hub or a score_sde checkpoint. {IN_PYTHON}"
        )
    content: Mapping[str, Any]
    if path.suffix.lower() == ".safetensors":
        content = read_tensors(path)
        weights = {name: tensor for name, tensor in content.items() if name.startswith("model.")}
        return _relevant(weights, path)
    content = read_pickled(path)
    if not isinstance(content, Mapping) or not isinstance(content.get("model"), Mapping):
        raise SelfcalError(f"{path} has no entry 'model', as checkpoints of score_sde_pytorch have. {otherwise(path)}")
    return _with_averages(_relevant(content["model"], path), content.get("ema"), path)


def _relevant(weights: Mapping[Any, Any], path: Path) -> Weights:
    chosen = {}
    for name, tensor in weights.items():
        short = str(name).removeprefix("model.").removeprefix("module.")  # `module.`: trained on several GPUs
        if isinstance(tensor, Tensor) and (short == "sigmas" or short.startswith("all_modules.")):
            chosen[short] = held(tensor, short, path)
    if not any(name.startswith("all_modules.") for name in chosen):
        raise SelfcalError(
            f"{path} holds no weights called all_modules.…, as models of score_sde_pytorch do. {otherwise(path)}"
        )
    return chosen


def otherwise(path: Path) -> str:
    """What else a file of weights may be."""
    if (path.parent / "config.json").is_file():
        return f"If diffusers wrote it, give its folder: {path.parent}"
    return IN_PYTHON


def _noise_range(levels: Tensor, path: Path) -> tuple[float, float]:
    low, high = (float(levels.min()), float(levels.max())) if levels.numel() else (math.nan, math.nan)
    if not 0 < low < high < math.inf:
        raise SelfcalError(f"{path}: its noise levels go from {low:g} to {high:g}, which is no range of σ")
    return low, high


def _with_averages(weights: Weights, ema: Any, path: Path) -> Weights:
    """Their average is a bare list, in the order of the trainable parameters."""
    if not isinstance(ema, Mapping) or "shadow_params" not in ema:
        return weights
    trainable = [n for n in weights if n not in ("sigmas", "all_modules.0.W")]
    averages = ema["shadow_params"]
    if not isinstance(averages, list | tuple) or len(averages) != len(trainable):
        raise SelfcalError(f"the averaged weights of {path} do not fit its model")
    content = {name: held(average, name, path) for name, average in zip(trainable, averages, strict=True)}
    if any(content[name].shape != weights[name].shape for name in content):
        raise SelfcalError(f"the averaged weights of {path} do not fit its model")
    return weights | content
