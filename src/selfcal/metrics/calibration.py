"""Expected calibration error: does 80 % confidence mean 80 % correct?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError


def check_probabilities(probabilities: Tensor, labels: Tensor | None = None) -> None:
    """(N, K) rows that sum to 1, and as many labels below K."""
    if probabilities.ndim != 2 or len(probabilities) == 0:
        raise SelfcalError(f"predictions are shaped {tuple(probabilities.shape)}; expected (N, K), at least one row")
    sums = probabilities.double().sum(-1)
    if not bool(((sums - 1).abs() < 1e-3).all()) or float(probabilities.min()) < 0:
        raise SelfcalError(
            "predictions are not probabilities: rows must be non-negative and sum to 1 (softmax of logits)"
        )
    if labels is None:
        return
    if labels.shape != (len(probabilities),):
        raise SelfcalError(
            f"{len(probabilities)} predictions for labels shaped {tuple(labels.shape)}; expected as many"
        )
    if int(labels.min()) < 0 or int(labels.max()) >= probabilities.shape[1]:
        raise SelfcalError(
            f"labels span {int(labels.min())} to {int(labels.max())}; there are {probabilities.shape[1]} classes"
        )


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence."""

    low: float
    high: float
    count: int
    confidence: float  # mean; 0 where count is 0
    accuracy: float


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 20) -> list[Bin]:
    """Predictions by confidence, in `bins` equal intervals [low, high); the last includes 1.

    The paper leaves the last interval open, so that a confidence of exactly 1 (common in fp32)
    would be in no bin at all.
    """
    check_probabilities(probabilities, labels)
    if bins < 1:
        raise SelfcalError(f"{bins} bins: at least one is needed")
    confidence, predicted = probabilities.double().max(-1)
    correct = (predicted == labels).double()
    index = (confidence * bins).long().clamp(0, bins - 1)
    count = torch.bincount(index, minlength=bins)
    sums = torch.zeros(2, bins, dtype=torch.float64)
    sums[0].index_add_(0, index, confidence)
    sums[1].index_add_(0, index, correct)
    means = sums / count.clamp(min=1)
    return [Bin(i / bins, (i + 1) / bins, int(count[i]), float(means[0, i]), float(means[1, i])) for i in range(bins)]


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 20) -> float:
    """Σ_bins (count/N) |accuracy − confidence|."""
    table = reliability(probabilities, labels, bins)
    return sum(b.count * abs(b.accuracy - b.confidence) for b in table) / len(labels)
