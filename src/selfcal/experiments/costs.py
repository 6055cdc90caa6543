"""What a training step costs, in plain classifier steps: measured by `make bench`, shown by `selfcal methods`."""

from __future__ import annotations

import json
from importlib import resources

from selfcal.methods.stage import Stage

FILE = "step_costs.json"


def measured() -> dict[str, float]:
    """{"cg-jem · classifier": 20.4, …}; 1 is a cross-entropy step of the same network and batch."""
    costs: dict[str, float] = json.loads((resources.files("selfcal.experiments") / FILE).read_text("utf-8"))["costs"]
    return costs


def key(method: str, stage: Stage) -> str:
    return f"{method} · {stage.name}"
