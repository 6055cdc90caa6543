"""scikit-learn's handwritten digits: 1797 real images of 8×8 pixels, no download needed."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits

from selfcal.data.dataset import Dataset, every_fifth


def load() -> Dataset:
    """Pixels 0…16 to [−1, 1]; every fifth image of each class is kept for testing."""
    digits = load_digits()
    x = torch.as_tensor(digits.images / 8.0 - 1.0, dtype=torch.float32)[:, None]
    y = torch.as_tensor(digits.target, dtype=torch.long)
    test = every_fifth(y)
    return Dataset(
        name="digits",
        x=x[~test],
        y=y[~test],
        classes=tuple(str(c) for c in range(10)),
        names=tuple(str(i) for i in (~test).nonzero()[:, 0].tolist()),
        x_test=x[test],
        y_test=y[test],
    )
