"""Labels for the unlabelled: what a classifier is sure of at σ_min, on clean images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from selfcal.data.dataset import Dataset
from selfcal.data.pixels import some
from selfcal.data.pool import Pool
from selfcal.diffusion.scores import UNLABELED, Logits

BATCH = 1000


@torch.no_grad()
def complete(
    classifier: Logits, data: Dataset, pool: Pool, sigma_min: float, threshold: float, *, device: torch.device
) -> tuple[Tensor, dict[str, Any]]:
    """(y, report): given labels stay, unlabelled images get theirs where the confidence exceeds the threshold."""
    y, unlabelled = pool.y.clone(), pool.unlabelled
    if not len(unlabelled):
        return y, {"unlabelled": 0, "kept": 0, "right": None, "threshold": threshold}
    probabilities = torch.cat(
        [
            classifier(x.to(device), torch.full((len(x),), sigma_min, device=device)).softmax(-1).cpu()
            for x in some(data.x, unlabelled).split(BATCH)
        ]
    )
    confidence, guess = probabilities.max(-1)
    sure = confidence > threshold
    y[unlabelled[sure]] = guess[sure]
    truth = data.y[unlabelled[sure]]
    checkable = truth != UNLABELED
    right = float((guess[sure] == truth)[checkable].double().mean()) if checkable.any() else None
    return y, {"unlabelled": len(unlabelled), "kept": int(sure.sum()), "right": right, "threshold": threshold}
