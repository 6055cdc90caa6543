"""The pictures of docs/idea.md, from selfcal's own code (about a minute): python docs/site/draw_idea.py"""

from __future__ import annotations

from pathlib import Path

import torch
from accelerate import Accelerator
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from selfcal.core.settings import resolve
from selfcal.data import moons
from selfcal.diffusion import UNLABELED, Noise, Noisy, classifier_guided, inner_unconditional, sample_heun
from selfcal.experiments.toy.fields import BLUE, CLASS_COLOURS, GREY, RED, bare
from selfcal.methods.reading import Reading, in_true_shares
from selfcal.methods.terms.cross_entropy import cross_entropy
from selfcal.methods.terms.self_calibration import self_calibration
from selfcal.nets.classifier import Classifier
from selfcal.nets.mlp import MLP
from selfcal.training.loop import Learner

OUT = Path(__file__).parents[1] / "idea"
SETTINGS, MIXTURE = resolve("moons", steps=3000), moons.mixture()
LABELLED, SHOWN_SIGMA = 60, 1.0
ORANGE, BLACK = "#d97706", "#111827"


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Points, their classes, and the labels that are seen."""
    x, y = MIXTURE.sample(2000, torch.Generator().manual_seed(0))
    seen = torch.where(torch.arange(len(x)) < LABELLED, y, UNLABELED)
    return x, y, seen


def train(x0: Tensor, seen: Tensor, weight: float) -> Classifier:
    """A classifier of cross-entropy, and of self-calibration where its weight is above 0."""
    torch.manual_seed(0)
    noise, net = Noise(SETTINGS.noise.sigma_min, SETTINGS.noise.sigma_max), SETTINGS.classifier
    classifier = Classifier(MLP(2, 2, width=net.width, blocks=net.blocks), sigma_data=SETTINGS.noise.sigma_data)
    learner, half = Learner(classifier, net, Accelerator(cpu=True)), net.batch // 2
    shares = in_true_shares(LABELLED / len(x0))

    def draw(number: int) -> Noisy:
        which = torch.cat([torch.randint(LABELLED, (half,)), torch.randint(LABELLED, len(x0), (half,))])
        return noise.perturb(x0[which], seen[which])

    def losses(network: Classifier, batch: Noisy) -> dict[str, tuple[float, Tensor]]:
        reading = Reading(network, batch)
        found = {"ce": (1.0, cross_entropy()(reading))}
        return found | {"sc": (weight, self_calibration()(reading.through(shares)))} if weight else found

    for _ in learner.run(draw, losses):
        pass
    return learner.average.module


def grid(step: float) -> Tensor:
    x, y = torch.arange(-12.0, 12.01, step), torch.arange(-8.0, 8.01, step)
    return torch.cartesian_prod(x, y)


def shade(axes: Axes, values: Tensor, step: float, colours: str) -> None:
    """A map of one value per point of the grid, lightest where it is largest."""
    columns = len(torch.arange(-12.0, 12.01, step))
    bare(axes).imshow(
        values.detach().reshape(columns, -1).T, origin="lower", extent=(-12, 12, -8, 8), cmap=colours, alpha=0.85
    )


def arrows(axes: Axes, where: Tensor, vectors: Tensor, colour: str, scale: float) -> None:
    look = {"angles": "xy", "scale_units": "xy", "scale": scale, "width": 0.006}
    axes.quiver(*where.T, *vectors.detach().T, color=colour, **look)


def draw_loss(x0: Tensor, y: Tensor, classifier: Classifier) -> None:
    """The way of the self-calibration loss, from noisy points to the comparison of two arrows."""
    figure = Figure(figsize=(9, 6.7), layout="constrained")  # two by two: readable on a phone
    panels = list(figure.subplots(2, 2).flat)
    points, fine, coarse = torch.arange(70, 90), grid(0.25), grid(2.0)
    sigma = torch.tensor(SHOWN_SIGMA)
    z = torch.randn(len(points), 2, generator=torch.Generator().manual_seed(3))
    x = x0[points] + sigma * z
    bare(panels[0]).scatter(*x0.T, 1, color=GREY, linewidths=0)
    panels[0].scatter(*x.T, 16, color=ORANGE)
    panels[0].plot(*torch.stack([x0[points], x]).permute(2, 0, 1), color=ORANGE, lw=0.7)
    panels[0].set_title("1  noise:  x = x₀ + σ z")
    logits = classifier(fine, sigma.expand(len(fine)))
    shade(panels[1], logits[:, 0] - logits[:, 1], 0.25, "coolwarm")
    panels[1].set_title("2  logits:  f(x, y, σ)")
    level = logits.logsumexp(-1)
    for panel in panels[2:]:
        shade(panel, level.clamp(min=level.quantile(0.3)), 0.25, "Greys_r")
    panels[2].set_title("3  logsumexp over y:  log p(x)")
    score = inner_unconditional(classifier)
    arrows(panels[3], coarse, score(coarse, sigma.expand(len(coarse))), "#6b7280", 1.6)
    arrows(panels[3], x, score(x, sigma.expand(len(x))), BLUE, 0.55)
    arrows(panels[3], x, -z / sigma, ORANGE, 0.55)
    panels[3].set_title("4  its gradient (blue), −z/σ (orange)")
    figure.savefig(OUT / "loss.png", dpi=110)


def draw_inner_scores(classifiers: dict[str, Classifier]) -> None:
    """What each classifier takes for the data, beside the truth, at one σ."""
    figure = Figure(figsize=(9, 2.5), layout="constrained")
    fine, coarse, sigma = grid(0.25), grid(1.5), torch.tensor(SHOWN_SIGMA)
    readings = {"the truth": MIXTURE.log_joint} | classifiers
    for panel, (name, logits) in zip(figure.subplots(1, len(readings)), readings.items(), strict=True):
        level = logits(fine, sigma.expand(len(fine))).logsumexp(-1).float()
        shade(panel, level.clamp(min=level.max() - 7), 0.25, "Greys_r")
        arrows(panel, coarse, inner_unconditional(logits)(coarse, sigma.expand(len(coarse))).float(), RED, 1.5)
        panel.set_title(name)
    figure.savefig(OUT / "inner-scores.png", dpi=110)


def draw_scales() -> None:
    """Exact guidance to one class at several λ."""
    scales, noise = (0.0, 1.0, 3.0, 10.0), Noise(SETTINGS.noise.sigma_min, SETTINGS.noise.sigma_max)
    figure = Figure(figsize=(9, 6.7), layout="constrained")
    start = noise.sigma_max * torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    everything, kinds = MIXTURE.sample(2000, torch.Generator().manual_seed(1))
    for panel, scale in zip(figure.subplots(2, 2).flat, scales, strict=True):
        y = torch.zeros(len(start), dtype=torch.long)
        made = sample_heun(classifier_guided(MIXTURE.score, MIXTURE.log_joint, y, scale), start, noise.karras(30))
        bare(panel).scatter(*everything.T, 1, c=[CLASS_COLOURS[k] for k in kinds], alpha=0.2, linewidths=0)
        panel.scatter(*made.T, 5, color=BLACK, linewidths=0)
        panel.set_title(f"λ = {scale:g}" + {0.0: ", the class is ignored", 1.0: ", Bayes' rule"}.get(scale, ""))
    figure.savefig(OUT / "scales.png", dpi=110)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    x0, y, seen = data()
    calibrated = train(x0, seen, SETTINGS.terms.sc_weight)
    draw_scales()
    draw_loss(x0, y, calibrated)
    draw_inner_scores({"cross-entropy alone": train(x0, seen, 0.0), "self-calibrated": calibrated})


if __name__ == "__main__":
    main()
