"""From trained networks and wanted classes to examples, and from examples to the guide's opinion of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.progress import Tick, bar, wanted
from selfcal.core.randomness import random_state
from selfcal.diffusion.guidance import GUIDES, Guide
from selfcal.diffusion.inputs import as_examples
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samplers import SAMPLERS, Sampler
from selfcal.diffusion.samples import Samples
from selfcal.diffusion.scores import ScoreFn, like

Watch = Callable[[int, Tensor], None]
"""(position of the first, denoised estimates (B, *)) of a batch; whatever it raises stops the sampling."""


@dataclass(frozen=True)
class Sampling:
    """How examples are drawn; whatever is None is left to the generator."""

    scale: float | None = None  # λ of classifier guidance, or w of classifier-free guidance
    guide: str | None = None  # a row of guidance.GUIDES
    sampler: str | None = None  # a row of samplers.SAMPLERS
    steps: int | None = None
    options: Mapping[str, float] = field(default_factory=dict)  # of the sampler

    def completed(self, usual: Sampling) -> Sampling:
        """What is left out as usual; the usual number of steps belongs to the usual sampler alone."""
        sampler = self.sampler or usual.sampler
        steps = usual.steps if self.steps is None and sampler == usual.sampler else self.steps
        scale = usual.scale if self.scale is None else self.scale
        return Sampling(scale, self.guide or usual.guide, sampler, steps, self.options)


@dataclass(frozen=True)
class Generator:
    """Trained networks by role ("score", "classifier", "conditional"), and how they are used unless one says."""

    networks: Mapping[str, Any]
    noise: Noise
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    usual: Sampling
    batch: int = 1000
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    title: str = ""  # before the words of a progress bar

    def sample(
        self,
        y: Tensor,
        how: Sampling | None = None,
        seed: int = 0,
        show_progress: bool | None = None,
        watch: Watch | None = None,
    ) -> Samples:
        """One example for each entry of y. Batches mix classes; each has a random state of its own.

        watch: is shown at every evaluation what would come out if no noise were left, batch by batch.
        """
        how = (how or Sampling()).completed(self.usual)
        walk, guide, scale, steps = checked(how, self.networks)
        sigmas, parts, evaluations = walk.levels(self.noise, steps), y.split(self.batch), walk.evaluations(steps)
        batches = []
        with bar(f"{self.title}sampling λ={scale:g}", evaluations * len(parts), show=wanted(show_progress)) as tick:
            for number, labels in enumerate(parts):
                rng = random_state(seed, "sampling", number)
                x = sigmas[0] * torch.randn((len(labels), *self.shape), generator=rng)
                score = counted(guide.score(self.networks, labels.to(self.device), scale), tick)
                score = score if watch is None else watched(score, partial(watch, number * self.batch))
                batches.append(walk.function(score, x.to(self.device), sigmas, rng=rng, **how.options).cpu())
        x = torch.cat(batches)
        about = {
            "guide": how.guide,
            "scale": scale,
            "sampler": how.sampler,
            "steps": steps,
            "evaluations": evaluations,
            "options": dict(how.options),
            "seed": seed,
        }
        return Samples(x.clamp(-1, 1) if len(self.shape) == 3 else x, y, self.classes, about)

    @torch.no_grad()
    def predict_proba(self, x: Any, sigma: float | None = None) -> Tensor:
        """p(y | x) of the guide, (B, K), on clean inputs; `sigma` if the inputs carry that much noise.

        x: images as uint8, as floats in [−1, 1] or as pictures (see inputs.py), or points.
        """
        if "classifier" not in self.networks:
            raise SelfcalError("this method has no classifier to predict with")
        x = as_examples(x, self.shape, clean=sigma is None)
        level = torch.full((len(x),), self.noise.sigma_min if sigma is None else sigma)
        parts = [
            self.networks["classifier"](images.to(self.device), sigmas.to(self.device)).softmax(-1).cpu()
            for images, sigmas in zip(x.split(self.batch), level.split(self.batch), strict=True)
        ]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.classes))


def checked(how: Sampling, networks: Mapping[str, Any]) -> tuple[Sampler, Guide, float, int]:
    """The rows of the sampler and of the guide, λ and the number of steps; or what is wrong with them."""
    walk = look_up("sampler", str(how.sampler), SAMPLERS)
    guide = look_up("guide", str(how.guide), GUIDES)
    steps, scale = walk.steps if how.steps is None else how.steps, how.scale or 0.0
    if not 0 <= scale < math.inf:
        raise SelfcalError(f"a guidance scale of {scale}: a finite number of at least 0 is needed")
    if scale and how.guide == "conditional":
        raise SelfcalError(f"--scale {scale:g}: a plain conditional model has no guidance to scale; leave it out")
    if steps < 1:
        raise SelfcalError(f"--steps {steps}: a sampler takes at least one step")
    for role in guide.needs:
        if role not in networks:
            raise SelfcalError(f"the guide {how.guide} needs a {role} network, which this method does not train")
    if any(not math.isfinite(value) for value in how.options.values()):
        raise SelfcalError(f"the options of the sampler {how.sampler} must be finite numbers")
    own = options_of(walk.function)
    if strange := [name for name in how.options if name not in own]:
        offer = f"it has {', '.join(own)}" if own else "it has none"
        raise SelfcalError(f"the sampler {how.sampler} has no such option: {', '.join(strange)}; {offer}")
    return walk, guide, scale, steps


def options_of(sampler: Callable[..., Tensor]) -> list[str]:
    """The keywords of a sampler that are for users."""
    parameters = inspect.signature(sampler).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "rng"]


def counted(score: ScoreFn, tick: Tick) -> ScoreFn:
    """The same score; ticks a bar at every evaluation."""

    def scored(x: Tensor, sigma: Tensor) -> Tensor:
        tick(1, "")
        return score(x, sigma)

    return scored


def watched(score: ScoreFn, watch: Callable[[Tensor], None]) -> ScoreFn:
    """The same score; shows the denoised estimate D = x + σ² s (Tweedie) at every evaluation."""

    def scored(x: Tensor, sigma: Tensor) -> Tensor:
        s = score(x, sigma)
        watch((x + like(sigma, x) ** 2 * s).detach().cpu())
        return s

    return scored


def class_index(classes: Sequence[str], name: int | str) -> int:
    """A class by its name, or by its position where no class is called so."""
    text = str(name)
    if text in classes:
        return classes.index(text)
    if text.isdigit() and int(text) < len(classes):
        return int(text)
    raise SelfcalError(f"unknown class {text!r}; this run has {', '.join(classes)}")


def spread(classes: Sequence[int], count: int) -> Tensor:
    """`count` class indices, as evenly as possible, in the order of the classes."""
    if count < 1:
        raise SelfcalError(f"--count {count}: at least one image must be asked for")
    each, extra = divmod(count, len(classes))
    return torch.cat([torch.full((each + (i < extra),), c, dtype=torch.long) for i, c in enumerate(classes)])
