"""Labels for the unlabelled: what a classifier is sure of at σ_min, on clean images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from selfcal.data import Dataset, Pool
from selfcal.diffusion.scores import UNLABELED, Logits

BATCH = 1000


@torch.no_grad()
def complete(
    classifier: Logits, data: Dataset, pool: Pool, sigma_min: float, threshold: float, *, device: torch.device
) -> tuple[Tensor, dict[str, Any]]:
    """(y, report): given labels stay, unlabelled images get theirs where the confidence exceeds the threshold."""
    y, hidden = pool.y.clone(), pool.unlabelled
    if not len(hidden):
        return y, {"unlabelled": 0, "kept": 0, "right": None, "threshold": threshold}
    probabilities = torch.cat(
        [
            classifier(x.to(device), torch.full((len(x),), sigma_min, device=device)).softmax(-1).cpu()
            for x in data.x[hidden].split(BATCH)
        ]
    )
    confidence, guess = probabilities.max(-1)
    kept = confidence > threshold
    y[hidden[kept]] = guess[kept]
    truth = data.y[hidden[kept]]
    known = truth != UNLABELED
    right = float((guess[kept] == truth)[known].double().mean()) if known.any() else None
    return y, {"unlabelled": len(hidden), "kept": int(kept.sum()), "right": right, "threshold": threshold}
