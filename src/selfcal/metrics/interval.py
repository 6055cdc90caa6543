"""95 % intervals for any metric of generated samples, biased ones included."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

GROUPS = 10
REACH = 2.262157  # 97.5 % quantile of Student's t with GROUPS − 1 degrees of freedom
METHOD = (
    f"delete-a-group jackknife over the generated samples (ece: the guide's test images), {GROUPS} groups, "
    "Student's t, 95 %"
)


def jackknife(
    measure: Callable[[Tensor], Mapping[str, float | None]], values: Mapping[str, float | None], count: int
) -> dict[str, list[float] | None]:
    """For each value an interval, from the metric with every tenth of the samples left out in turn.

    measure maps a mask of samples to the metrics of those. Leaving a tenth out hardly changes a bias
    of order 1/N (FID's), unlike a bootstrap, whose repeated samples double it. The interval tells how
    much other samples of the same model would differ, not other models or other labels.
    """
    group = torch.arange(count) % GROUPS
    parts = [measure(group != g) for g in range(GROUPS)]
    intervals: dict[str, list[float] | None] = {}
    for name, value in values.items():
        leftouts = [p[name] for p in parts]
        if value is None or any(f is None for f in leftouts):
            intervals[name] = None
            continue
        each = torch.tensor(leftouts, dtype=torch.float64)
        error = float(((GROUPS - 1) / GROUPS * (each - each.mean()).square().sum()).sqrt())
        intervals[name] = [value - REACH * error, value + REACH * error]
    return intervals
