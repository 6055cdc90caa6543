"""95 % intervals for any metric of generated samples, biased ones included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import Tensor

GROUPS = 10
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
    intervals = {}
    for name, value in values.items():
        leave_outs = [p[name] for p in parts]
        lacks = value is None or any(v is None for v in leave_outs)
        intervals[name] = None if lacks else of_leave_outs(value, torch.tensor([value, *leave_outs]).double())
    return intervals


def of_leave_outs(value: float | None, numbers: Tensor | None) -> list[float] | None:
    """The interval around a value from (1 + GROUPS,) numbers: of all samples, and of all but each group."""
    if value is None or numbers is None or not numbers.isfinite().all():
        return None
    each = numbers[1:]
    error = float(((GROUPS - 1) / GROUPS * (each - each.mean()).square().sum()).sqrt())
    return [value - reach() * error, value + reach() * error]


@cache
def reach() -> float:
    """97.5 % quantile of Student's t with GROUPS − 1 degrees of freedom."""
    from scipy.stats import t

    return float(t.ppf(0.975, GROUPS - 1))
