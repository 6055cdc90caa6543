"""λ without labels: how far samples lie from the training images *as the guide labels them*.

A user with four labels a class has no images of known class to hold samples against. But the guide has an opinion of
every training image: the images that it takes for cats stand in for cats. The distance is intra-FD, as with true
labels. What matters is the space it is measured in: pixels hardly tell classes apart and ask for too little guidance;
features of a network of photos do, and for small images those of a judge that the guide's own labels taught.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from selfcal.data.dataset import Dataset
from selfcal.data.pixels import some
from selfcal.diffusion.samples import Samples
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation import features as extractors
from selfcal.evaluation.features import Features
from selfcal.evaluation.guide import Subject, evenly, shared_opinions
from selfcal.evaluation.reference import Reference
from selfcal.evaluation.sides import Frechet, Groups

MOST = 10_000  # training images that the guide is asked about
LEAST = 5  # images that a class must have been given for a distance to it to mean anything


@dataclass(frozen=True)
class GuidesClasses:
    """The training images by the class the guide sees in them, against which sets of samples are measured."""

    judge: Features
    of_class: dict[int, Frechet]

    def __call__(self, samples: Samples) -> float | None:
        """Intra-FD to the guide's classes, averaged over those that it gave enough images."""
        fake, distances = self.judge.embed(samples.x), []
        for c, side in self.of_class.items():
            members = samples.y == c
            if int(members.sum()) > 1:
                distances.append(float(side(fake[members], Groups.in_turn(int(members.sum()), 1))[0]))
        return sum(distances) / len(distances) if distances else None


def guides_classes(
    subject: Subject, measured: Reference | None = None, show_progress: bool = False
) -> GuidesClasses | None:
    """None without a guide, or where it takes all images for the same class. measured: the training images as
    evaluation sees them."""
    if "classifier" not in subject.generator.networks:
        return None
    pick = evenly(torch.arange(len(subject.data.x)), MOST)
    data = as_the_guide_labels(subject, pick)
    counts = torch.bincount(data.y, minlength=len(data.classes))
    known = [c for c in range(len(data.classes)) if counts[c] >= LEAST]
    if len(known) < 2:
        return None
    if measured is not None and measured.judge.knows_no_labels:  # as good, and computed already
        judge, real = measured.judge, measured.features[pick]
    else:
        team = subject.generator.team
        judge = extractors.without_true_labels(data, show_progress, team)
        real = extractors.reference(judge, data, show_progress, team)
    return GuidesClasses(judge, {c: Frechet(real[data.y == c]) for c in known})


def as_the_guide_labels(subject: Subject, pick: Tensor) -> Dataset:
    """Some of the training images with the labels that were given, and else the guide's."""
    data = subject.data
    x, given = some(data.x, pick), subject.labels[pick]
    y: Tensor = torch.where(given != UNLABELED, given, shared_opinions(subject.generator, x).argmax(-1))
    names = tuple(data.names[i] for i in pick.tolist())
    return replace(data, x=x, y=y, names=names, x_test=some(data.x_test, slice(0)), y_test=data.y_test[:0])
