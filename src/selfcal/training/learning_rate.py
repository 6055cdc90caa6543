"""The learning rate over the steps of a training."""

from __future__ import annotations

from selfcal.core.settings import NetworkSettings


def learning_rate(settings: NetworkSettings, step: int) -> float:
    """Linear warm-up, then (1 − step/steps)^decay; `step` counts from 0."""
    warm = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    return settings.lr * warm * max(0.0, 1 - step / settings.steps) ** settings.decay
