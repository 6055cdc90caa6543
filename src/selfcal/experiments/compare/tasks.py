"""The work of a comparison: cells, and the score models that they wait for. Both answer the same questions.

seed, name                  which it is
run(out)                    its run directory
units(protocol)             how long it takes, in plain training steps
waits_for(protocol)         the score model it needs, if any
work(out, protocol)         do it, in whatever process
fail(out, error, trace)     note that it could not be done
"""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selfcal.core.errors import SelfcalError
from selfcal.core.files import check_inside, make_folder, write_arrays, write_json
from selfcal.core.reading import advising, read_if_there
from selfcal.data.label_files import is_label_file
from selfcal.data.sources import spelled
from selfcal.diffusion.samples import Samples
from selfcal.evaluation.evaluate import ALONE
from selfcal.experiments import costs
from selfcal.experiments.compare.protocol import Protocol
from selfcal.experiments.compare.records import AGAIN, Outcome
from selfcal.experiments.compare.variants import base, changes_of
from selfcal.methods.table import find
from selfcal.report.pictures import first_of_each_class
from selfcal.run import train

TRIED_ALONE = ("cg", "cg-dlsm", "cg-sc-labeled", "cg-sc-all")  # whose classifiers the paper also tries as generators
SAMPLE = 0.11  # plain training steps that take as long as one sample, drawn and measured
FINISHED = ("done", "diverged")  # a divergence is a result, too: it is not tried again


@dataclass(frozen=True)
class ScoreModel:
    """The unconditional model of a seed, trained once and shared by every method."""

    seed: int

    @property
    def name(self) -> str:
        return f"score model · seed {self.seed}"

    def run(self, out: Path) -> Path:
        return out / "scores" / f"seed-{self.seed}"

    def units(self, protocol: Protocol) -> float:
        return float(protocol.resolved.score.steps)

    def waits_for(self, protocol: Protocol) -> None:
        return None

    def work(self, out: Path, protocol: Protocol) -> None:
        p = protocol
        check_inside(self.run(out), within=out)
        train(spelled(p.data), "cg", p.score_labels, self.run(out), seed=self.seed, until="score", **p.training)

    def fail(self, out: Path, error: str, trace: str = "") -> None:
        """Noted by the cells that waited for it."""


@dataclass(frozen=True, order=True)
class Cell:
    """One training and its evaluation."""

    method: str  # its name in the table, and after it what is varied
    labels: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method} · {self.labels} · seed {self.seed}"

    def run(self, out: Path) -> Path:
        return out / "cells" / self.method.replace(" ", "@") / folder_name(self.labels) / f"seed-{self.seed}"

    def outcome(self, out: Path) -> Path:
        return self.run(out).with_name(f"seed-{self.seed}.json")

    def pictures(self, out: Path) -> Path:
        return self.run(out).with_name(f"seed-{self.seed}.npz")

    def state(self, out: Path) -> str:
        """done, diverged, failed or waiting."""
        outcome = self.read(out)
        if outcome is None:
            return "waiting"
        return "diverged" if outcome.get("diverged") else str(outcome["state"])

    def read(self, out: Path) -> dict[str, Any] | None:
        """Its outcome, if there is one; another cell's is refused."""
        file = self.outcome(out)
        with advising(AGAIN):
            found: dict[str, Any] | None = read_if_there(file, Outcome)
        if found is not None and (found["method"], found["labels"], found["seed"]) != (
            self.method,
            self.labels,
            self.seed,
        ):
            raise SelfcalError(f"{file} is the outcome of another cell; {AGAIN}")
        return found

    def units(self, protocol: Protocol) -> float:
        """From the measured costs; to tell how much time is left."""
        cost_of, row, settings = costs.measured(), find(base(self.method)), protocol.resolved
        steps = sum(
            stage.settings(settings).steps * cost_of.get(costs.key(row.name, stage), 1.0)
            for stage in row.stages(settings)
            if stage.name != "score"
        )
        scales = len(row.grid(protocol.scales))
        sets = scales + 1 if scales > 1 else 1  # one is reported, the others choose λ
        sets += len(ALONE) if base(self.method) in TRIED_ALONE else 0
        return steps + SAMPLE * protocol.samples * sets

    def waits_for(self, protocol: Protocol) -> ScoreModel | None:
        seed = self.seed if protocol.score_seed is None else protocol.score_seed
        return ScoreModel(seed) if self.needs_score(protocol) and protocol.score is None else None

    def needs_score(self, protocol: Protocol) -> bool:
        return "score" in [stage.name for stage in find(base(self.method)).stages(protocol.resolved)]

    def work(self, out: Path, protocol: Protocol) -> None:
        """Train, sample and measure; whatever happens becomes the outcome."""
        try:
            report, seconds = self._measure(out, protocol)
        except SelfcalError as error:
            self.fail(out, str(error), traceback.format_exc())
        except Exception as error:
            self.fail(out, f"{type(error).__name__}: {error}", traceback.format_exc())
        else:
            write_json(self.outcome(out), asdict(self) | {"state": "done", "seconds": seconds, **report})

    def _measure(self, out: Path, protocol: Protocol) -> tuple[dict[str, Any], dict[str, float]]:
        """The report of evaluation, and how long training and evaluation took. Leaves the first samples beside it."""
        p, began, samples = protocol, time.monotonic(), list[Samples]()
        donor = self.waits_for(p)
        check_inside(self.run(out), within=out)
        given = p.score if self.needs_score(p) else None
        score = given if donor is None else donor.run(out)
        options = p.training | {"settings": p.changes | changes_of(self.method)}
        run = train(
            spelled(p.data), base(self.method), self.labels, self.run(out), seed=self.seed, score=score, **options
        )
        middle = time.monotonic()
        report = run.evaluate(
            scales=run.method.grid(p.scales),
            count=p.samples,
            seed=self.seed,
            curve=False,
            alone=base(self.method) in TRIED_ALONE,
            keep=samples.append,
            label_free=p.label_free,  # only recorded: the protocol chooses with labels
        )
        for row in (*report["results"], *report["selection"], *report["alone"]):
            row["method"] = self.method  # with what is varied
        arrays: dict[str, np.ndarray] = {}
        for s in samples:  # the method's own, and of networks alone; none if training diverged
            prefix = "" if s.made["guide"] == run.method.guide else f"{s.made['guide']} "
            arrays |= {prefix + name: a for name, a in examples(s.x.numpy(), s.y.numpy()).items()}
        if arrays:
            write_arrays(self.pictures(out), arrays)
        seconds = {"training": round(middle - began, 1), "evaluation": round(time.monotonic() - middle, 1)}
        return report, seconds

    def fail(self, out: Path, error: str, trace: str = "") -> None:
        file = self.outcome(out)
        make_folder(file.parent, within=out)
        write_json(file, asdict(self) | {"state": "failed", "error": error, "traceback": trace})


Task = Cell | ScoreModel


def examples(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Images: the first of each class, not picked. Points: enough to see their shape."""
    if x.ndim == 4:
        return {"images": first_of_each_class(x, y)}
    positions = np.linspace(0, len(x) - 1, min(len(x), 1000)).round().astype(int)
    return {"x": x[positions].astype(np.float32), "y": y[positions]}


def folder_name(labels: str) -> str:
    """ "4/class" -> "4-per-class"; a CSV -> its name."""
    if is_label_file(labels):
        return Path(labels).stem
    return labels.replace("/", "-per-")
