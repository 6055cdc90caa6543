"""How much of its score a network has learned, from its log: a fraction of a zero score's loss, 1 being nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from selfcal.core.settings import NetworkSettings

LINES = 10  # at the end of a log, averaged: a single batch is noise
IDLE = 0.95  # a self-calibration that ends above it did not act


def learned(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By network, the fractions that its last lines tell of: {"classifier": {"sc_fraction": 0.17}}."""
    values: dict[str, dict[str, list[float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name.endswith("_fraction") and isinstance(value, float):
                values.setdefault(line["network"], {}).setdefault(name, []).append(value)
    return {
        network: {name: sum(last[-LINES:]) / len(last[-LINES:]) for name, last in of_network.items()}
        for network, of_network in values.items()
    }


def idle_in_words(fraction: float, net: NetworkSettings) -> str:
    """What to do about a self-calibration that did not act."""
    pooled = net.network == "ncsnpp" and net.head == "pooled"
    advice = "--set classifier.head=energy" if pooled else "more steps, or a larger terms.sc_weight"
    return (
        f"self-calibration did not act: its loss is still {fraction:.0%} of a zero inner score's, so this guide is in "
        f"truth a plain one; try {advice}"
    )
