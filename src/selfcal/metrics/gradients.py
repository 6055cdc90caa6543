"""How far a classifier's gradients ∇ₓ log p(y|x) are from the truth, where the truth is known."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from selfcal.diffusion.guidance import input_gradient
from selfcal.diffusion.scores import Logits

LOWER_IS_BETTER = {"gradient_mse": True, "gradient_cs": False, "cond_score_cs": False, "direction_cs": False}
"""The three columns of the paper's table, and the gradients' directions whatever their lengths."""

SCALES = tuple(2.0 ** (k / 4) for k in range(-20, 21))
"""Guidance scales tried for the rows "+ scaling": 1/32 to 32, equal ratios, and λ = 1 is among them."""

CLAMP = 1e-8  # norms below it count as it: the default of torch's cosine_similarity


def paper_grid() -> Tensor:
    """x ∈ {−12, −11.5, …, 12}, y ∈ {−8, −7.5, …, 8}: 1617 points, (N, 2)."""
    return torch.cartesian_prod(torch.arange(-24, 25) / 2, torch.arange(-16, 17) / 2)


def gradient_field(classifier: Logits, x: Tensor, sigma: float, classes: int) -> Tensor:
    """∇ₓ log p(y | x, σ) at every point, a field per class: (K, N, D), in double precision.

    As Σ_k p_k (∇f_y − ∇f_k): where the classifier is sure of y, differentiating log_softmax would
    subtract numbers that are nearly 1 and lose the direction; here nothing cancels.
    """
    sigmas = x.new_full((len(x),), sigma)
    p = classifier(x, sigmas).detach().double().softmax(-1)
    slopes = torch.stack(
        [input_gradient(lambda x, k=k: classifier(x, sigmas)[:, k], x).double() for k in range(classes)]  # type: ignore[misc]
    )
    return torch.stack([(p.T[..., None] * (slopes[y] - slopes)).sum(0) for y in range(classes)])


def direction(v: Tensor) -> Tensor:
    """v/‖v‖ however short v is; 0 for 0."""
    longest = v.abs().amax(-1, keepdim=True)
    return F.normalize(v / longest.masked_fill(longest == 0, 1), dim=-1)


def cosine(a: Tensor, b: Tensor) -> float:
    return float((direction(a) * direction(b)).sum(-1).mean())


def gradient_errors(estimate: Tensor, truth: Tensor, score: Tensor) -> dict[str, float]:
    """The columns for fields (K, N, D) and the exact unconditional score (N, D), means over points and classes.

    The squared error is summed over dimensions. Conditional scores are gradient + score on both sides.
    In `gradient_cs` a norm below 1e-8 counts as 1e-8, as torch has it unless told otherwise: a gradient
    that has vanished points nowhere. The paper does not say so, but its cosines move with scaling, which
    without a clamp they could not. Where the truth itself is that sure of a class, even it scores 0;
    `direction_cs` has no clamp.
    """
    return {
        "gradient_mse": float((estimate - truth).square().sum(-1).mean()),
        "gradient_cs": float(F.cosine_similarity(estimate, truth, dim=-1, eps=CLAMP).mean()),
        "cond_score_cs": cosine(estimate + score, truth + score),
        "direction_cs": cosine(estimate, truth),
    }


def scaled_errors(estimate: Tensor, truth: Tensor, score: Tensor) -> dict[float, dict[str, float]]:
    """λ -> the columns of λ·estimate."""
    return {scale: gradient_errors(scale * estimate, truth, score) for scale in SCALES}


def best_scale(errors: dict[float, dict[str, float]], column: str) -> float:
    """The λ that is best in one column; of those equal to nine digits, the one nearest to 1."""
    sign = 1 if LOWER_IS_BETTER[column] else -1
    return min(errors, key=lambda scale: (round(sign * errors[scale][column], 9), abs(math.log(scale))))
