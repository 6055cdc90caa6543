"""The real images' side of every metric, computed once; sets of samples are measured against it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from selfcal import metrics
from selfcal.data.dataset import Dataset
from selfcal.diffusion.samples import Samples
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.features import Features, reference
from selfcal.metrics import interval
from selfcal.metrics.prdc import Balls

NEIGHBOURS = 5
LEAST = 20  # real images of known class, in every class, below which no per-class metric is reported

Values = dict[str, float | None]
"""Metrics by name; None where the data cannot support one."""


class Reference:
    """The real images' features and what follows from them alone."""

    def __init__(self, data: Dataset, judge: Features, show_progress: bool = False) -> None:
        self.judge = judge
        self.real = reference(judge, data, show_progress)
        self.balls = Balls(self.real, NEIGHBOURS) if len(self.real) > NEIGHBOURS else None
        labelled = data.y != UNLABELED
        self.labelled, self.y = self.real[labelled], data.y[labelled]
        self.classes_are_known = data.fewest_per_class >= LEAST

    def intra_fid(self, samples: Samples) -> float | None:
        return self._intra(metrics.fid, self.judge.embed(samples.x), samples.y)

    def measure(self, samples: Samples, intervals: bool = False) -> tuple[Values, dict[str, list[float] | None] | None]:
        """The metrics of one set of samples, and their 95 % intervals."""
        fake = self.judge.embed(samples.x)
        probabilities = None if self.judge.classify is None else self.judge.classify(samples.x)
        recognised = probabilities if self.judge.recognise is None else self.judge.recognise(samples.x)

        def of(mask: Tensor) -> Values:
            opinion = None if probabilities is None else probabilities[mask]
            recognition = None if recognised is None else recognised[mask]
            return self._values(fake[mask], samples.y[mask], opinion, recognition)

        values = of(torch.ones(len(fake), dtype=torch.bool))
        return values, interval.jackknife(of, values, len(fake)) if intervals else None

    def _values(self, fake: Tensor, y: Tensor, probabilities: Tensor | None, recognised: Tensor | None) -> Values:
        """A key here, and a row of report/columns.py, make a column of every table."""
        inside: tuple[float | None, float | None] = (None, None)
        if self.balls is not None:
            inside = self.balls.density_coverage(fake)
        return {
            "intra_fid": self._intra(metrics.fid, fake, y),
            "fid": metrics.fid(self.real, fake),
            "kid": metrics.kid(self.real, fake),
            "density": inside[0],
            "coverage": inside[1],
            "intra_density": self._intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[0], fake, y),
            "intra_coverage": self._intra(lambda r, f: metrics.density_coverage(r, f, NEIGHBOURS)[1], fake, y),
            "inception_score": None if recognised is None else metrics.inception_score(recognised, splits=1)[0],
            "accuracy": None if probabilities is None else metrics.generation_accuracy(probabilities, y),
        }

    def _intra(self, metric: Callable[[Tensor, Tensor], float], fake: Tensor, y: Tensor) -> float | None:
        """None where too few images are known to be of a class to tell how it is distributed."""
        return metrics.per_class(metric, self.labelled, self.y, fake, y) if self.classes_are_known else None
