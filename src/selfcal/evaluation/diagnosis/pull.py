"""Which way the guide pulls: its scores beside the score model's, and what guidance does to denoising.

The conditional score is what denoises images of its class best: it is the minimiser of E‖σ s(x_σ) + z‖² over them. So
on images of known class, guidance by the right class must lower that loss; where it raises it, it pulls away.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from selfcal.diffusion.generator import Generator
from selfcal.diffusion.guidance import inner_unconditional, likelihood_score
from selfcal.evaluation.guide import levels

Vectors = dict[str, Tensor]


def pull_by_sigma(generator: Generator, x0: Tensor, y: Tensor, scale: float) -> list[dict[str, float]]:
    """On images x0 (N, *) of classes y, at growing noise, means over the images:

    inner_cosine, inner_length: of the guide's inner score ∇ logsumexp f, against the score model's s,
    guidance_cosine, guidance_length: of λ ∇ log p(y | x), against the total s + λ ∇ log p(y | x),
    gain: 1 − ‖σ (s + ∇ log p(y | x)) + z‖² / ‖σ s + z‖², what guidance takes off the denoising loss at λ = 1.
    """
    rows = []
    for sigma in levels(generator):
        z = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
        v = over_batches(generator, x0, y, z, sigma)
        guidance = scale * v["likelihood"]
        total = v["score"] + guidance
        before, after = (sigma * s + z.flatten(1) for s in (v["score"], v["score"] + v["likelihood"]))
        rows.append(
            {
                "sigma": sigma,
                "inner_cosine": mean_cosine(v["inner"], v["score"]),
                "inner_length": length(v["inner"]) / length(v["score"]),
                "guidance_cosine": mean_cosine(guidance, total),
                "guidance_length": length(guidance) / length(total),
                "gain": 1 - float(after.square().sum() / before.square().sum()),
            }
        )
    return rows


def over_batches(generator: Generator, x0: Tensor, y: Tensor, z: Tensor, sigma: float) -> Vectors:
    """The three scores at x0 + σ z, each (N, D)."""
    networks, device = generator.networks, generator.device
    score, classifier = networks["score"], networks["classifier"]
    inner = inner_unconditional(classifier)
    parts: dict[str, list[Tensor]] = {"score": [], "inner": [], "likelihood": []}
    for images, classes, noise in zip(*(t.split(generator.batch) for t in (x0, y, z)), strict=True):
        x, level = (images + sigma * noise).to(device), torch.full((len(images),), sigma, device=device)
        with torch.no_grad():
            parts["score"].append(score(x, level).cpu().flatten(1))
        parts["inner"].append(inner(x, level).cpu().flatten(1))
        parts["likelihood"].append(likelihood_score(classifier, x, level, classes.to(device)).cpu().flatten(1))
    return {name: torch.cat(values) for name, values in parts.items()}


def mean_cosine(a: Tensor, b: Tensor) -> float:
    return float(F.cosine_similarity(a, b, dim=1).mean())


def length(a: Tensor) -> float:
    """Root of the mean squared length."""
    return float(a.square().sum(1).mean().sqrt().clamp(min=1e-12))
