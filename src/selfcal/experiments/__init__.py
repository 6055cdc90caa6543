"""Studies made of runs: compare, demo, toy, doctor, each with its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def _comparison(folder: Path) -> Path:
    from selfcal.experiments.compare.page import write_page

    return write_page(folder)


def _demo(folder: Path) -> Path:
    from selfcal.experiments.demo.page import write_page

    return write_page(folder)


def _doctor(folder: Path) -> Path:
    from selfcal.experiments.doctor.page import write_page

    return write_page(folder)


def _toy(folder: Path) -> Path:
    from selfcal.experiments.toy.page import write_page

    return write_page(folder)


PAGES: dict[str, Callable[[Path], Path]] = {
    "compare.json": _comparison,
    "guides.json": _demo,
    "toy.json": _toy,
    "doctor.json": _doctor,
}
"""The file a folder of results is known by, and what makes its page."""
