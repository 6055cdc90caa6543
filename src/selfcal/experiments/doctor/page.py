"""The doctor's page: one self-contained HTML file, rebuilt from doctor.json and doctor.npz alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from selfcal.core.files import file_sha256, surfaced, write_text
from selfcal.core.progress import say
from selfcal.core.reading import Record, as_written, read_arrays, read_record
from selfcal.diffusion.pictures import GAP, SIDE, grid, png
from selfcal.evaluation.diagnosis.diagnose import FILE, PICTURES
from selfcal.experiments.doctor import figures
from selfcal.report.page import render
from selfcal.report.pictures import data_uri

PAGE = "doctor.html"


class Diagnosed(Record):
    """doctor.json, as far as every diagnosis has it."""

    about: dict[str, Any]
    findings: list[dict[str, Any]]
    notes: list[str]
    measured: dict[str, Any]
    pictures_sha256: str | None = None


def write_page(folder: Path) -> Path:
    """RUN/doctor.html."""
    found = read_record(folder / FILE, Diagnosed)
    images = pictures_of(found, folder)
    with as_written(folder / FILE, "selfcal doctor", f"run selfcal doctor {folder} again"):
        text = page_of(found, images)
    with surfaced(f"cannot write to {folder}"):
        write_text(folder / PAGE, text)
    return folder / PAGE


def pictures_of(found: Any, folder: Path) -> Mapping[str, np.ndarray]:
    """Those of this diagnosis: a doctor that was stopped may have left the next one's."""
    promised = found.get("pictures_sha256") if isinstance(found, dict) else None
    if promised is not None and (folder / PICTURES).is_file() and file_sha256(folder / PICTURES) != promised:
        say(f"{folder / PICTURES} is not of the same diagnosis as {FILE}; the page is made without its pictures")
        return {}
    return read_arrays(folder / PICTURES, ("suspects", "nearest"))


def page_of(found: Mapping[str, Any], images: Mapping[str, np.ndarray]) -> str:
    m = found["measured"]
    return render(
        Path(__file__).with_name("doctor.html"),
        about=found["about"],
        findings=found["findings"],
        notes=found["notes"],
        m=m,
        figures=drawn(m) if m else {},
        suspects=captioned(m["suspects"]["found"], images.get("suspects")) if m else [],
        nearest=data_uri(png(grid(images["nearest"], enlarged(images["nearest"])))) if "nearest" in images else None,
    )


def drawn(m: Mapping[str, Any]) -> dict[str, list[str]]:
    """By question; those that the run has an answer to."""
    made = {}
    if m["knows"]["by_sigma"] or m["knows"]["labelled"]:
        made["knows"] = figures.knows(m["knows"]["by_sigma"], m["knows"]["labelled"])
    if m["acts"]:
        made["acts"] = figures.acts(m["acts"])
    if m["pulls"]:
        made["pulls"] = figures.pulls(m["pulls"])
    if m["scale"]["curve"]:
        made["scale"] = figures.scales(m["scale"]["curve"], m["scale"]["scale"])
    return made


def captioned(suspects: list[dict[str, Any]], images: np.ndarray | None) -> list[dict[str, Any]]:
    """Each label in doubt with its picture, where it is an image."""
    pictures = [] if images is None else [data_uri(png(grid(x[None, None], enlarged(images)))) for x in images]
    return [{**s, "picture": p} for s, p in zip(suspects, [*pictures, *[None] * len(suspects)], strict=False)]


def enlarged(images: np.ndarray) -> int:
    return max(1, (SIDE - 2 * GAP) // images.shape[-1])
