"""From trained networks and wanted classes to examples, and examples to files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.core.progress import Tick, bar
from selfcal.diffusion import guidance, samplers
from selfcal.diffusion.noise import Noise, ScoreFn
from selfcal.training.loop import random_state


@dataclass(frozen=True)
class Samples:
    """Generated examples x (N, *) in the data's units, the classes asked for, and how they were made."""

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]
    made: dict[str, Any]

    def __len__(self) -> int:
        return len(self.x)

    def save(self, path: str | Path) -> None:
        """An `.npz` (x in [−1, 1], y, class names), or a folder of PNGs by class."""
        path = Path(path)
        if path.suffix == ".npz":
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(path, x=self.x.numpy(), y=self.y.numpy(), classes=np.array(self.classes))
            return
        if self.x.ndim != 4:
            raise SelfcalError(f"points cannot be saved as images; give --out a name that ends in .npz, not {path}")
        for c in self.y.unique().tolist():
            folder = path / folder_name(self.classes[c], c)
            folder.mkdir(parents=True, exist_ok=True)
            for i, image in enumerate(self.x[self.y == c]):
                to_image(image).save(folder / f"{i:05d}.png")


def folder_name(name: str, position: int) -> str:
    """The class's name, unless it would lead elsewhere: names can come from files that others wrote."""
    plain = name.isprintable() and name.strip(". ") and not {"/", "\\", ":"} & {*name} and len(name.encode()) < 200
    return name if plain else f"class-{position}"


def to_image(x: Tensor) -> Image.Image:
    """(C, H, W) in [−1, 1] -> a grey or colour image."""
    pixels = ((x.clamp(-1, 1) + 1) * 127.5).round().byte().numpy()
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def counted(score: ScoreFn, tick: Tick) -> ScoreFn:
    """The same score; ticks a bar at every evaluation."""

    def scored(x: Tensor, sigma: Tensor) -> Tensor:
        tick(1, "")
        return score(x, sigma)

    return scored


def sample_classes(
    networks: Mapping[str, Any],
    *,
    guide: str,
    y: Tensor,
    scale: float,
    sampler: str,
    steps: int | None,
    noise: Noise,
    shape: tuple[int, ...],
    classes: tuple[str, ...],
    batch: int,
    seed: int,
    device: torch.device,
    show_progress: bool = False,
    title: str = "",
    options: Mapping[str, float] | None = None,
) -> Samples:
    """One example for each entry of y. Batches mix classes; each has a random state of its own."""
    row, steered = samplers.find(sampler), guidance.find(guide)
    if not 0 <= scale < math.inf:
        raise SelfcalError(f"a guidance scale of {scale}: a finite number of at least 0 is needed")
    steps = row.steps if steps is None else steps
    if steps < 1:
        raise SelfcalError(f"--steps {steps}: a sampler takes at least one step")
    sigmas = row.levels(noise, steps)
    parts = y.split(batch)
    made = []
    try:
        steered(networks, y[:1].to(device), scale)
    except KeyError as missing:
        raise SelfcalError(
            f"the guide {guide} needs a {missing.args[0]} network, which this method does not train"
        ) from None
    with bar(f"{title}sampling λ={scale:g}", row.evaluations(steps) * len(parts), show=show_progress) as tick:
        for number, wanted in enumerate(parts):
            rng = random_state(seed, "sampling", number)
            x = sigmas[0] * torch.randn((len(wanted), *shape), generator=rng)
            score = counted(steered(networks, wanted.to(device), scale), tick)
            try:
                made.append(row.function(score, x.to(device), sigmas, rng=rng, **(options or {})).cpu())
            except TypeError as error:
                if "unexpected keyword" in str(error):
                    raise SelfcalError(
                        f"the sampler {sampler} has no such option: {', '.join(options or {})}"
                    ) from None
                raise
    x = torch.cat(made)
    about = {
        "guide": guide,
        "scale": scale,
        "sampler": sampler,
        "steps": steps,
        "evaluations": row.evaluations(steps),
        "options": dict(options or {}),
        "seed": seed,
    }
    return Samples(x.clamp(-1, 1) if len(shape) == 3 else x, y, classes, about)
