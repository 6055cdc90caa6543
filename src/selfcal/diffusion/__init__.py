"""The mathematics of diffusion, usable alone: noise, scores, guidance and samplers, all functions of (x, σ).

from selfcal.diffusion import Noise, classifier_guided, sample_heun

noise = Noise(sigma_min=0.02, sigma_max=10.0)
score = classifier_guided(score, classifier, y, scale=2.0)
x = sample_heun(score, noise.sigma_max * torch.randn(16, 1, 8, 8), noise.karras(18))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfcal.diffusion.generator import Generator, Sampling
    from selfcal.diffusion.guidance import (
        classifier_free,
        classifier_guided,
        conditional,
        inner_conditional,
        inner_unconditional,
        likelihood_score,
    )
    from selfcal.diffusion.mixture import GaussianMixture
    from selfcal.diffusion.noise import Noise, Noisy
    from selfcal.diffusion.samplers import sample_dpmpp_2m, sample_dpmpp_2m_sde, sample_euler, sample_heun, sample_pc
    from selfcal.diffusion.samples import Samples
    from selfcal.diffusion.scores import UNLABELED, Conditional, Logits, ScoreFn, like

_MODULES = {
    "generator": ("Generator", "Sampling"),
    "guidance": (
        "classifier_free",
        "classifier_guided",
        "conditional",
        "inner_conditional",
        "inner_unconditional",
        "likelihood_score",
    ),
    "mixture": ("GaussianMixture",),
    "noise": ("Noise", "Noisy"),
    "samplers": ("sample_dpmpp_2m", "sample_dpmpp_2m_sde", "sample_euler", "sample_heun", "sample_pc"),
    "samples": ("Samples",),
    "scores": ("UNLABELED", "Conditional", "Logits", "ScoreFn", "like"),
}

__all__ = [
    "UNLABELED",
    "Conditional",
    "GaussianMixture",
    "Generator",
    "Logits",
    "Noise",
    "Noisy",
    "Samples",
    "Sampling",
    "ScoreFn",
    "classifier_free",
    "classifier_guided",
    "conditional",
    "inner_conditional",
    "inner_unconditional",
    "like",
    "likelihood_score",
    "sample_dpmpp_2m",
    "sample_dpmpp_2m_sde",
    "sample_euler",
    "sample_heun",
    "sample_pc",
]


def __getattr__(name: str) -> Any:
    """Import on first use: whoever wants a sampler does not wait for the rest."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"selfcal.diffusion.{module}"), name)
    raise AttributeError(f"module 'selfcal.diffusion' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
