"""What comes of opening a model from elsewhere, of whatever kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from selfcal.nets.forms import ScoreModel


@dataclass(frozen=True)
class Adopted:
    """A score model in our units, the settings that make its network again, the σ it knows, and what it is."""

    model: ScoreModel
    settings: dict[str, Any]
    sigma_min: float
    sigma_max: float
    words: str
    own: Callable[..., Any] | None = None  # the user's module, which settings alone cannot make


def of_score(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the score network, which counts as trained: by one step."""
    return {f"score.{key}": value for key, value in settings.items()} | {"score.steps": 1}
