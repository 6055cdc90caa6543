"""Pictures on the way: what the networks can do so far, as samples/preview-<stage>-<step>.png.

They are made of the averaged weights with random states of their own, so training goes on as if nobody had looked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.files import make_folder, surfaced, write_bytes
from selfcal.diffusion.generator import Generator, Sampling
from selfcal.diffusion.guidance import GUIDES
from selfcal.diffusion.pictures import captioned_grid, png
from selfcal.diffusion.samples import ANY_CLASS
from selfcal.methods.stage import Stage
from selfcal.training.directory import RunDirectory

IMAGES = 16
SAMPLER, STEPS = "dpm++2m", 12  # few evaluations, no noise of its own: pictures of two steps can be compared
SHARE = 0.03  # of the time of training, which previews may take
FEWEST = 100  # steps of a stage whose end is shown, though it is shorter than the time between pictures
SHORT = 10.0  # seconds that the picture at the end may take in any case


@dataclass
class Previews:
    """The pictures of one stage, every so many steps."""

    run: RunDirectory
    stage: Stage
    networks: Mapping[str, Any]  # of the stages before, by role
    every: int
    device: torch.device
    clock: Callable[[], float] = time.monotonic
    latest: Path | None = None
    spent: float = 0.0
    price: float = 0.0  # seconds of the next picture, as far as is known
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def guide(self) -> str | None:
        """The method's own where its networks are there by now; a score model is sampled from as it is."""
        there = {*self.networks, self.stage.role}
        if {*GUIDES[self.run.method.guide].needs} <= there:
            return self.run.method.guide
        return "unconditional" if self.stage.role == "score" else None

    def due(self, step: int, steps: int, network: nn.Module) -> bool:
        """At every so many steps and at the end of a stage that is worth a look, so long as they cost little."""
        if not self.every or len(self.run.shape) != 3 or self.guide is None:
            return False
        at_the_end = step == steps >= min(self.every, FEWEST)
        if step % self.every and not at_the_end:
            return False
        self.price = self.price or self._estimate(network)
        if step == steps and self.price <= SHORT:
            return True
        return self.spent + self.price <= SHARE * (self.clock() - self.began)

    def _estimate(self, network: nn.Module) -> float:
        """Seconds of a picture, from one evaluation: an adopted model may be far slower than what is trained."""
        began = self.clock()
        self.picture(network, 1)
        took = self.clock() - began
        self.spent += took
        return took * STEPS

    def draw(self, step: int, network: nn.Module) -> Path:
        """The picture of this step."""
        began = self.clock()
        content = self.picture(network)
        file = self.run.path / "samples" / f"preview-{self.stage.name}-{step:08d}.png"
        with surfaced(f"cannot write {file}"):
            make_folder(file.parent, within=self.run.path)
            write_bytes(file, content)
        took = self.clock() - began
        self.spent, self.price, self.latest = self.spent + took, took, file
        return file

    def picture(self, network: nn.Module, evaluations: int = STEPS) -> bytes:
        """A few images, by class where the guide knows of classes; always from the same noise."""
        network.eval()  # for good: of an average nothing but its weights is used in training
        run, guide = self.run, self.guide
        y, names = classes_shown(len(run.classes)), run.classes
        if guide == "unconditional":
            y, names = torch.zeros(IMAGES, dtype=torch.long), (ANY_CLASS,)
        generator = Generator(
            networks={**self.networks, self.stage.role: network},
            noise=run.noise,
            shape=run.shape,
            classes=run.classes,
            usual=Sampling(run.method.scale, guide, SAMPLER, evaluations),
            batch=run.settings.sampling.batch,
            device=self.device,
        )
        samples = generator.sample(y, seed=run.config["seed"])
        return png(captioned_grid(samples.x.nan_to_num().numpy(), y.numpy(), names))


def classes_shown(classes: int) -> Tensor:
    """As many images in all as are shown without classes: two at least of each, of the first classes if need be."""
    each = max(2, IMAGES // classes)
    return torch.arange(min(classes, IMAGES // 2)).repeat_interleave(each)
