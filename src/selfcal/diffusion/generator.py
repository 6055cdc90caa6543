"""From trained networks and wanted classes to examples, and from examples to the guide's opinion of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from selfcal.core.bounds import MOST_SAMPLER_STEPS, check_memory, check_seed, check_whole
from selfcal.core.errors import SelfcalError, look_up, unknown
from selfcal.core.progress import Tick, bar, wanted
from selfcal.core.randomness import random_state
from selfcal.core.team import ALONE, Team
from selfcal.diffusion.guidance import GUIDES, Guide
from selfcal.diffusion.inputs import as_examples
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samplers import SAMPLERS, Rows, Sampler
from selfcal.diffusion.samples import Drawing, Samples
from selfcal.diffusion.scores import ScoreFn, like

Watch = Callable[[int, Tensor], None]
"""(position of the first, denoised estimates (B, *)) of a batch; whatever it raises stops the sampling."""

MOST_SAMPLES = 10**12
TENSORS = 3  # of a batch that samplers hold at least: examples, their score, fresh noise
SLICE = 64  # images that a network is shown at a time


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
    team: Team = ALONE  # with whom sampling is shared
    watch: Watch | None = None  # who is shown estimates on the way

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
        return replace(self, watch=watch).draw(y, how, seed, show_progress).all()

    def draw(self, y: Tensor, how: Sampling | None = None, seed: int = 0, show_progress: bool | None = None) -> Drawing:
        """The same, made batch by batch while one asks for them: for more than one wants to hold in memory."""
        how = (how or Sampling()).completed(self.usual)
        check_seed(seed)
        walk, _, scale, steps = checked(how, self.networks)
        about = {
            "guide": how.guide,
            "scale": scale,
            "sampler": how.sampler,
            "steps": steps,
            "evaluations": walk.evaluations(steps),
            "options": dict(how.options),
            "seed": seed,
        }
        size = 4.0 * min(len(y), self.batch) * math.prod(self.shape)
        check_memory(TENSORS * size, f"batches of {self.batch}", "make sampling.batch smaller")
        batches = partial(self._batches, y, how, seed, wanted(show_progress) and self.team.is_main)
        return Drawing(y, self.classes, about, self.shape, batches)

    def _batches(self, y: Tensor, how: Sampling, seed: int, show_progress: bool) -> Iterator[Tensor]:
        """In order. Of several processes each walks whole batches so long as there is one for each of them, and
        slices of those that remain."""
        walk, guide, scale, steps = checked(how, self.networks)
        parts, world = list(enumerate(y.split(self.batch))), self.team.world
        total = walk.evaluations(steps) * sum(walks_of(len(parts), world))
        strength = f" λ={scale:g}" if guide.has_strength else ""
        with bar(f"{self.title}sampling{strength}", total, show=show_progress) as tick:
            while parts:
                turn, parts = parts[:world], parts[world:]
                if len({len(labels) for _, labels in turn}) == 1 and len(turn) == world:
                    number, labels = turn[self.team.rank]
                    own = self._walk(
                        labels, random_state(seed, "sampling", number), how, tick, start=number * self.batch
                    )
                    yield from self.team.gathered(own, [len(labels)] * world)
                else:
                    for number, labels in turn:
                        yield self._shared(
                            labels, random_state(seed, "sampling", number), how, tick, number * self.batch
                        )

    def _shared(self, labels: Tensor, rng: torch.Generator, how: Sampling, tick: Tick, start: int) -> Tensor:
        """One batch, of which each process walks some slices."""
        bounds = slices(len(labels))
        cuts = [len(bounds) * r // self.team.world for r in range(self.team.world + 1)]
        if checked(how, self.networks)[0].mixes:
            cuts = [0, *[len(bounds)] * self.team.world]
        edges = [bounds[c][0] if c < len(bounds) else len(labels) for c in cuts]
        rows = slice(edges[self.team.rank], edges[self.team.rank + 1])
        own = self._walk(labels, rng, how, tick, rows, start + rows.start)
        return torch.cat(self.team.gathered(own, [b - a for a, b in pairwise(edges)]))

    def _walk(
        self,
        labels: Tensor,
        rng: torch.Generator,
        how: Sampling,
        tick: Tick,
        rows: slice = slice(None),
        start: int = 0,
    ) -> Tensor:
        """From noise to examples, of these rows of a batch: the same ones, to the bit, whoever walks the others.

        start: the position of the first of them among all that are drawn.
        """
        walk, guide, scale, steps = checked(how, self.networks)
        sigmas = walk.levels(self.noise, steps)
        x = (sigmas[0] * torch.randn((len(labels), *self.shape), generator=rng))[rows]
        if len(x):
            first = rows.start or 0
            own = [(a - first, b - first) for a, b in slices(len(labels)) if first <= a and b <= first + len(x)]
            told = labels[rows].to(self.device)
            score = in_slices([guide.score(self.networks, told[a:b], scale) for a, b in own], own)
            score = score if self.watch is None else watched(score, partial(self.watch, start))
            random = Rows(rng, len(labels), rows) if len(x) < len(labels) else rng
            x = walk.function(counted(score, tick), x.to(self.device), sigmas, rng=random, **how.options).cpu()
        check_finite(x, scale, how)
        return x.clamp(-1, 1) if len(self.shape) == 3 else x

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


def slices(count: int) -> list[tuple[int, int]]:
    """How a batch is shown to the networks: in equal parts of at most SLICE, an even number of them if more than one.

    Always, however many processes there are: what a network makes of an image may depend, in its last bits, on how
    many others it sees with it.
    """
    parts = -(-count // SLICE)
    parts += parts % 2 if parts > 1 else 0
    return [(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


def walks_of(batches: int, world: int) -> tuple[int, int]:
    """How many batches one of several processes walks, whole and in part."""
    return batches // world, batches % world


def in_slices(scores: Sequence[ScoreFn], bounds: Sequence[tuple[int, int]]) -> ScoreFn:
    """One score of all, from those of each slice."""

    def scored(x: Tensor, sigma: Tensor) -> Tensor:
        return torch.cat([score(x[a:b], sigma[a:b]) for score, (a, b) in zip(scores, bounds, strict=True)])

    return scores[0] if len(scores) == 1 else scored


def checked(how: Sampling, networks: Mapping[str, Any]) -> tuple[Sampler, Guide, float, int]:
    """The rows of the sampler and of the guide, λ and the number of steps; or what is wrong with them."""
    walk = look_up("sampler", str(how.sampler), SAMPLERS)
    guide = look_up("guide", str(how.guide), GUIDES)
    steps, scale = walk.steps if how.steps is None else how.steps, how.scale or 0.0
    if not 0 <= scale < math.inf:
        raise SelfcalError(f"a guidance scale of {scale}: a finite number of at least 0 is needed")
    if scale and how.guide == "conditional":
        raise SelfcalError(f"--scale {scale:g}: a plain conditional model has no guidance to scale; leave it out")
    check_whole("--steps", steps, 1, MOST_SAMPLER_STEPS)
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


def check_finite(x: Tensor, scale: float, how: Sampling) -> None:
    """Before images are cut to [−1, 1], which would hide infinities."""
    if not x.isfinite().all():
        options = "".join(f", {name} = {value:g}" for name, value in how.options.items())
        raise SelfcalError(
            f"sampling left the finite numbers (scale {scale:g}, {how.sampler}{options}), so nothing was made; a lower "
            "--scale, more --steps or usual options may help, and `selfcal doctor` says whether the networks are whole"
        )


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
    if text.isdecimal() and len(text) < 10 and int(text) < len(classes):
        return int(text)
    raise unknown("class", text, classes)


def spread(classes: Sequence[int], count: int) -> Tensor:
    """`count` class indices, as evenly as possible, in the order of the classes."""
    check_whole("--count", count, 1, MOST_SAMPLES)
    check_memory(16 * count, f"--count {count}", "ask for fewer at a time, with another --seed each")
    each, extra = divmod(count, len(classes))
    return torch.cat([torch.full((each + (i < extra),), c, dtype=torch.long) for i, c in enumerate(classes)])
