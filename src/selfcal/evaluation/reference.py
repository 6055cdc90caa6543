"""The real images' side of every metric, computed once and cached; sets of samples are measured against it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from selfcal import metrics
from selfcal.core.comparable import LEAST
from selfcal.core.progress import bar
from selfcal.core.team import ALONE, Team
from selfcal.data.dataset import Dataset, no_test
from selfcal.diffusion.samples import Samples
from selfcal.evaluation.cache import remembered
from selfcal.evaluation.features import Features, reference
from selfcal.evaluation.sides import Frechet, Groups, Kernel, Neighbourhoods
from selfcal.metrics import interval
from selfcal.metrics.kid import SUBSET, is_for_subsets
from selfcal.metrics.prdc import Balls, pairs_of

NEIGHBOURS = 5
LARGE = 2000  # real images from which their own distances are worth keeping on disk

Values = dict[str, float | None]
"""Metrics by name; None where the data cannot support one."""


Count = Callable[[int], None]
"""Told of so many pairs of real images, whenever they are done."""


class Side:
    """Real features and what follows from them alone: of all images, or of one class."""

    def __init__(self, real: Tensor, own: dict[str, Tensor] | None = None) -> None:
        """own: what `own_side` found."""
        own = own_side(real) if own is None else own
        self.frechet = Frechet(real, own)
        self.kernel = Kernel(real, own["kernel"])
        self.near = Neighbourhoods(real, NEIGHBOURS, own["squared_radius"]) if "squared_radius" in own else None


def own_side(real: Tensor, count: Count = lambda pairs: None) -> dict[str, Tensor]:
    """All that follows from real images alone: their mean and factor, the kernel's mean over their pairs, the radii of
    their balls; from the cache if they are many."""

    def make() -> dict[str, Tensor]:
        found = {**Frechet(real).known, "kernel": Kernel(real).within}
        if len(real) <= NEIGHBOURS:
            return found
        return found | {"squared_radius": Balls(real, NEIGHBOURS, tick=count).squared_radius}

    if len(real) < LARGE:
        return make()
    content = hashlib.sha256(real.contiguous().numpy().data).hexdigest()
    return remembered(f"side-{content[:32]}-{NEIGHBOURS}", make)


@contextmanager
def percents(title: str, pairs: int, show: bool) -> Iterator[Count]:
    """A bar over so many pairs."""
    done = 0
    with bar(title, 100, show=show) as tick:

        def count(more: int) -> None:
            nonlocal done
            before, done = 100 * done // pairs, done + more
            tick(100 * done // pairs - before, "% of all pairs")

        yield count


def has_class_references(data: Dataset) -> bool:
    return class_references(data)[0] is not None


def class_references(data: Dataset) -> tuple[str | None, Dataset]:
    """Which images tell how each class is distributed: training images of known class, else those of the test split;
    None where neither are enough."""
    if data.fewest_per_class >= LEAST:
        return "train", data
    if data.classes and len(data.x_test):
        names = tuple(map(str, range(len(data.x_test))))
        none, no_labels = no_test(data.x_test)
        test = replace(data, x=data.x_test, y=data.y_test, names=names, x_test=none, y_test=no_labels)
        if test.fewest_per_class >= LEAST:
            return "test", test
    return None, data


class Reference:
    """The real images, all together and by class, against which sets of samples are measured."""

    def __init__(self, data: Dataset, judge: Features, show_progress: bool = False, team: Team = ALONE) -> None:
        self.judge, self.show_progress, self.classes = judge, show_progress, data.classes
        self.features = real = reference(judge, data, show_progress, team)
        self.class_split, known = class_references(data)
        self.per_class = known.fewest_per_class
        of_known = real if known is data else reference(judge, known, show_progress, team)
        classes = range(len(data.classes)) if self.class_split else range(0)
        by_class = [of_known[known.y == c] for c in classes]
        pairs = sum(pairs_of(len(part)) for part in (real, *by_class))
        with percents(f"distances in {data.name}", pairs, show_progress and len(real) > LARGE) as count:
            own = team.from_main(lambda: [own_side(part, count) for part in (real, *by_class)])
            self.whole, *of_class = (Side(part, o) for part, o in zip((real, *by_class), own, strict=True))
            self.of_class = dict(zip(classes, of_class, strict=True))
        self.kid_pairs = f"subsets of {SUBSET}" if is_for_subsets(real) else "all"

    def intra_fid(self, samples: Samples) -> float | None:
        return self.measure(samples)[0]["intra_fid"]

    def measure(self, samples: Samples, intervals: bool = False) -> tuple[Values, dict[str, list[float] | None] | None]:
        """The metrics of one set of samples, and their 95 % intervals."""
        groups = Groups.in_turn(len(samples), interval.GROUPS if intervals else 1)
        title, slow = f"measuring {len(samples)} samples", self.show_progress and len(self.features) > LARGE
        with bar(title, 3 + 2 * len(self.of_class), show=slow) as tick:
            numbers = self._distances(self.judge.embed(samples.x), samples.y, groups, partial(tick, 1, "distances"))
        numbers |= self._judged(samples, groups)
        values = {name: None if n is None else float(n[0]) for name, n in numbers.items()}
        if not intervals:
            return values, None
        return values, {name: interval.of_leave_outs(values[name], n) for name, n in numbers.items()}

    def by_class(self, samples: Samples) -> list[dict[str, Any]]:
        """The chief numbers of every class by itself, where they can be told."""
        fake, rows = self.judge.embed(samples.x), []
        seen = None if self.judge.classify is None else self.judge.classify(samples.x)
        second = None if self.judge.second is None else self.judge.second(samples.x)
        for c, name in enumerate(self.classes):
            members, side = samples.y == c, self.of_class.get(c)
            if not members.any() or (side is None and seen is None and second is None):
                continue
            alone, row = Groups.in_turn(int(members.sum()), 1), dict[str, Any]({"class": name})
            if side is not None and len(alone.of) > 1:
                row["intra_fid"] = float(side.frechet(fake[members], alone)[0])
                near = None if side.near is None else side.near(fake[members], alone)[0].tolist()
                row |= {} if near is None else {"intra_density": near[0], "intra_coverage": near[1]}
            if seen is not None:
                row["accuracy"] = metrics.generation_accuracy(seen[members], samples.y[members])
            if second is not None:
                row["agreement"] = metrics.generation_accuracy(second[members], samples.y[members])
            rows.append(row)
        return rows

    def _distances(self, fake: Tensor, y: Tensor, groups: Groups, tick: Callable[[], None]) -> dict[str, Tensor | None]:
        """A key here, and a row of report/columns.py, make a column of every table. tick: after each distance."""

        def of_all(side: Callable[[Tensor, Groups], Tensor] | None) -> Tensor | None:
            found = None if side is None else side(fake, groups)
            tick()
            return found

        def of_classes(metric: Callable) -> Tensor | None:
            return self._intra(metric, fake, y, groups, tick)

        near, intra = of_all(self.whole.near), of_classes(lambda side: side.near)
        return {
            "intra_fid": of_classes(lambda side: side.frechet),
            "fid": of_all(self.whole.frechet),
            "kid": of_all(self.whole.kernel),
            "density": None if near is None else near[:, 0],
            "coverage": None if near is None else near[:, 1],
            "intra_density": None if intra is None else intra[:, 0],
            "intra_coverage": None if intra is None else intra[:, 1],
        }

    def _judged(self, samples: Samples, groups: Groups) -> dict[str, Tensor | None]:
        """What the judge makes of the images: how sure and how varied it finds them, and whether they are as asked."""
        probabilities = None if self.judge.classify is None else self.judge.classify(samples.x)
        recognised = probabilities if self.judge.recognise is None else self.judge.recognise(samples.x)
        second = None if self.judge.second is None else self.judge.second(samples.x)
        scores = accuracy = None
        if recognised is not None:
            scores = [metrics.inception_score(recognised[mask], splits=1)[0] for mask in groups.masks()]
        if probabilities is not None:
            accuracy = [metrics.generation_accuracy(probabilities[m], samples.y[m]) for m in groups.masks()]
        numbers = {
            "inception_score": None if scores is None else torch.tensor(scores, dtype=torch.float64),
            "accuracy": None if accuracy is None else torch.tensor(accuracy, dtype=torch.float64),
        }
        if second is not None:  # where too few labels are known for a judge
            agreement = [metrics.generation_accuracy(second[m], samples.y[m]) for m in groups.masks()]
            numbers["agreement"] = torch.tensor(agreement, dtype=torch.float64)
        return numbers

    def _intra(
        self, metric: Callable, fake: Tensor, y: Tensor, groups: Groups, tick: Callable[[], None]
    ) -> Tensor | None:
        """The mean over the classes; None where too few images are known to be of a class to tell how it is
        distributed."""
        values = []
        for c, side in self.of_class.items():
            of_side, members = metric(side), y == c
            if of_side is None or not members.any():
                return None
            values.append(of_side(fake[members], groups.among(members)))
            tick()
        return torch.stack(values).mean(0) if values else None
