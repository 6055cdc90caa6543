"""Two moons as a Gaussian mixture: the 2-D toy on which every score is known exactly."""

from __future__ import annotations

import torch
from sklearn.datasets import make_moons

from selfcal.data.dataset import Dataset
from selfcal.diffusion.mixture import GaussianMixture

TRAIN, TEST = 2000, 2000


def mixture() -> GaussianMixture:
    """1000 centres on two moons, centred, five units wide, each smoothed by N(0, 1)."""
    centres, labels = make_moons(1000, noise=0.0, random_state=1)
    return GaussianMixture(
        centres=torch.as_tensor((centres - centres.mean(0)) * 5.0, dtype=torch.float64),
        labels=torch.as_tensor(labels, dtype=torch.long),
        variance=1.0,
        priors=torch.tensor([0.5, 0.5], dtype=torch.float64),
    )


def load() -> Dataset:
    """2000 training and 2000 test draws, always the same ones."""
    x, y = mixture().sample(TRAIN + TEST, torch.Generator().manual_seed(1))
    return Dataset(
        name="moons",
        x=x[:TRAIN],
        y=y[:TRAIN],
        classes=("upper", "lower"),
        names=tuple(str(i) for i in range(TRAIN)),
        x_test=x[TRAIN:],
        y_test=y[TRAIN:],
    )
