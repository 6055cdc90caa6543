"""Every intra-metric, once: a metric per class, averaged over the classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from selfcal.core.errors import SelfcalError


def per_class(
    metric: Callable[[Tensor, Tensor], float], real: Tensor, y_real: Tensor, fake: Tensor, y_fake: Tensor
) -> float:
    """mean_c metric(real of class c, fake of class c), over the classes that were made.

    A real class without a single fake is an error, not an average over the rest.
    """
    for name, features, y in (("real", real, y_real), ("generated", fake, y_fake)):
        if y.shape != (len(features),) or not len(features):
            raise SelfcalError(
                f"{len(features)} {name} examples have classes shaped {tuple(y.shape)}; expected as many, not 0"
            )
    classes = torch.cat([y_real, y_fake]).unique().tolist()
    values = []
    for c in classes:
        real_of_class, fake_of_class = real[y_real == c], fake[y_fake == c]
        for name, features in (("real", real_of_class), ("generated", fake_of_class)):
            if not len(features):
                raise SelfcalError(f"class {c} has no {name} examples; the per-class metric needs both")
        try:
            values.append(metric(real_of_class, fake_of_class))
        except SelfcalError as error:
            raise SelfcalError(f"class {c}: {error}") from None
    return sum(values) / len(values)
