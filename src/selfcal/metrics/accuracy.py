"""Does a judge that never guided see the class that was asked for?"""

from __future__ import annotations

from torch import Tensor

from selfcal.metrics.calibration import check_probabilities


def generation_accuracy(probabilities: Tensor, wanted: Tensor) -> float:
    """Share of generated examples whose most likely class, by an external classifier, is the wanted one."""
    check_probabilities(probabilities, wanted)
    return float((probabilities.argmax(-1) == wanted).double().mean())
