"""`selfcal compare`: methods × labels × seeds under one protocol, resumable.

grid.py: what is compared, and where its files lie; protocol.py: what all cells have in common
tasks.py: a cell, a score model; runner.py: all of them, side by side; board.py: the live table
summary.py, tables.py, latex.py, figures.py, claims.py, findings.py: from outcomes to words; page.py: all of it
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfcal.experiments.compare.grid import Grid
    from selfcal.experiments.compare.protocol import Protocol
    from selfcal.experiments.compare.runner import compare
    from selfcal.experiments.compare.tasks import Cell, ScoreModel

__all__ = ["Cell", "Grid", "Protocol", "ScoreModel", "compare"]

_MODULES = {"Cell": "tasks", "Grid": "grid", "Protocol": "protocol", "ScoreModel": "tasks", "compare": "runner"}


def __getattr__(name: str) -> Any:
    """Import on first use: who only reads results does not wait for torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
