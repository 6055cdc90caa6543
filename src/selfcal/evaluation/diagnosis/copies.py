"""Does it memorise? How near samples come to labelled images, and how much of the data they reach."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal import metrics
from selfcal.data.dataset import Dataset
from selfcal.diffusion.samples import Samples
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.guide import evenly
from selfcal.evaluation.reference import NEIGHBOURS

RARE = 0.05  # of real images lie as near to a labelled one as what is called a copy
MOST = 2000  # real images that are held against samples
FEWEST = 20  # real images that were not labelled, to know how near is near


@dataclass(frozen=True)
class Copies:
    """Samples beside real images; None where too few real images are not labelled."""

    copied: float | None  # share of samples that lie nearer to a labelled image than 95 % of other real images do
    nearness: float | None  # median distance of samples to the nearest labelled image, over that of real images
    density: float | None
    coverage: float | None
    real_coverage: float | None  # that real images of no more number than the samples reach
    nearest: Tensor  # (N,): position in the data of each sample's nearest labelled image

    def in_json(self) -> dict[str, float | None]:
        return {name: value for name, value in vars(self).items() if name != "nearest"}


def copies(samples: Samples, data: Dataset, labels: Tensor) -> Copies:
    """In pixels (points: in their own units): copies are near there, too."""
    shown, hidden = ((labels != UNLABELED).nonzero()[:, 0], (labels == UNLABELED).nonzero()[:, 0])
    labelled, fake = data.x[shown].flatten(1), samples.x.flatten(1)
    others = torch.cat([data.x[evenly(hidden, MOST)], evenly(data.x_test, MOST)]).flatten(1)
    distance, nearest = torch.cdist(fake, labelled).min(1)
    share = ratio = None
    if len(others) >= FEWEST:
        usual = torch.cdist(others, labelled).min(1).values
        share = float((distance < usual.quantile(RARE)).double().mean())
        ratio = float(distance.median() / usual.median().clamp(min=1e-12))
    return Copies(share, ratio, *reach(fake, data), shown[nearest])


def reach(fake: Tensor, data: Dataset) -> tuple[float | None, float | None, float | None]:
    """Density and coverage of the samples among as many real images, and the coverage of other real ones."""
    count = min(len(fake), len(data.x) // 2, MOST)
    if count <= 2 * NEIGHBOURS:
        return None, None, None
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(0))
    real, other = (data.x[part].flatten(1) for part in (order[:count], order[count : 2 * count]))
    fake = fake[torch.randperm(len(fake), generator=torch.Generator().manual_seed(0))[:count]]
    density, coverage = metrics.density_coverage(real, fake, NEIGHBOURS)
    return density, coverage, metrics.density_coverage(real, other, NEIGHBOURS)[1]
