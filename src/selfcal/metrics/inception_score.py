"""Inception score (Salimans et al. 2016): confident on each, varied over all."""

from __future__ import annotations

from torch import Tensor

from selfcal.core.errors import SelfcalError
from selfcal.metrics.calibration import check_probabilities


def inception_score(probabilities: Tensor, splits: int = 10) -> tuple[float, float]:
    """exp E[KL(p(y|x) ‖ p(y))], mean and standard deviation over `splits` consecutive parts.

    Samples made class by class must be shuffled first, or every part misses classes.
    """
    check_probabilities(probabilities)
    if not 1 <= splits <= len(probabilities):
        raise SelfcalError(f"{len(probabilities)} predictions cannot be cut into {splits} parts")
    scores = []
    for part in probabilities.double().tensor_split(splits):
        marginal = part.mean(0, keepdim=True)
        divergence = part.xlogy(part) - part.xlogy(marginal)
        scores.append(divergence.sum(-1).mean().exp())
    mean = sum(scores) / splits
    spread = sum((s - mean) ** 2 for s in scores) / splits
    return float(mean), float(spread) ** 0.5
