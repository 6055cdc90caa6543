"""metrics.json holds every evaluation of a run: the newest as its own keys, those before in "earlier"."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from selfcal.evaluation.choice import ONLY

MEASURED_BY = ("features_sha256", "samples", "sampler", "evaluations", "sample_seed", "reference_sha256")


def weights_of(networks: Mapping[str, nn.Module]) -> str:
    """A hash of all weights: a run that was trained on is another one."""
    digest = hashlib.sha256()
    for role in sorted(networks):
        for name, value in networks[role].state_dict().items():
            digest.update(f"{role}.{name}".encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def key_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """What tells evaluations of one run apart; the same key again replaces the numbers of before."""
    results = report.get("results") or [{}]
    first = results[0] if isinstance(results[0], dict) else {}
    tried = report.get("selection") or results
    scales = [row.get("scale") for row in tried if isinstance(row, dict)]
    return {**{name: first.get(name) for name in MEASURED_BY}, "scales": scales, "weights": report.get("weights")}


def added(report: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """The report with all earlier ones below it, the newest first."""
    key = key_of(report)
    kept = [e for e in evaluations(before) if key_of(e) != key]
    return {**report, "key": key, "earlier": kept}


def evaluations(metrics: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Every evaluation that a metrics.json holds, the newest first; files of before hold one."""
    if metrics:
        yield {name: value for name, value in metrics.items() if name != "earlier"}
        earlier = metrics.get("earlier")
        yield from (e for e in earlier if isinstance(e, dict)) if isinstance(earlier, list) else ()


def recommended(metrics: Mapping[str, Any] | None) -> tuple[float, str] | None:
    """The λ that the newest evaluation with a choice recommends, and by what it was chosen."""
    for report in evaluations(metrics):
        choice = report.get("chosen")
        if isinstance(choice, dict):
            scale, by = choice.get("scale"), str(choice.get("by"))
        else:  # written before there was more than one way to choose
            rows = [r for r in report.get("results") or () if isinstance(r, dict)]
            known = [r for r in rows if r.get("selection_intra_fid") is not None and r.get("chosen")]
            scale, by = (known[0].get("scale"), "intra-FID") if known else (None, "")
        if isinstance(scale, int | float) and 0 <= scale < math.inf and by != ONLY:
            return float(scale), by
    return None
