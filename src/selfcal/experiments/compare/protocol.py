"""What all cells of a comparison have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from selfcal.core.settings import Settings

UNSEEN = {"run.preview_every": 0}  # nobody watches a cell


@dataclass(frozen=True)
class Protocol:
    """Numbers of another protocol do not belong into the same folder."""

    data: str
    data_sha256: str
    preset: str
    settings: dict[str, Any]
    samples: int
    score_labels: str  # the score model sees no labels; its run is opened with these
    scales: str = "paper"  # the grid from which λ is chosen; older comparisons knew no other
    score_seed: int | None = None  # of the one score model that all seeds share; None: each seed has its own
    label_free: bool = False  # also record which λ would be chosen without labels, and at what price
    how_read: dict[str, Any] = field(default_factory=dict)  # size, skip_broken, test_labels, where asked for
    score: str | None = None  # the run whose score model all cells take over, where one was given
    score_sha256: str | None = None  # of its averaged weights

    @cached_property
    def resolved(self) -> Settings:
        return Settings.model_validate(self.settings)

    @property
    def training(self) -> dict[str, Any]:
        """What `train` is told of every cell."""
        return {"preset": self.preset, "settings": self.changes | UNSEEN, **self.how_read}

    @property
    def changes(self) -> dict[str, Any]:
        """Every setting by its dotted name."""
        return {
            f"{section}.{name}": value for section, values in self.settings.items() for name, value in values.items()
        }
