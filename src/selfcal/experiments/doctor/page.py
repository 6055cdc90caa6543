"""The doctor's page: one self-contained HTML file, rebuilt from doctor.json and doctor.npz alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jinja2
import numpy as np

from selfcal.core.errors import SelfcalError
from selfcal.core.files import read_json, surfaced, write_text
from selfcal.diffusion.pictures import GAP, SIDE, grid, png
from selfcal.experiments.doctor import figures
from selfcal.report.page import render
from selfcal.report.pictures import data_uri

PAGE = "doctor.html"
MOST_PIXELS = 2**26  # of all pictures; more than the doctor ever keeps


def write_page(folder: Path) -> Path:
    """RUN/doctor.html."""
    found, images = read_json(folder / "doctor.json"), pictures_in(folder / "doctor.npz")
    try:
        text = page_of(found, images)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, jinja2.TemplateError):
        raise SelfcalError(
            f"{folder / 'doctor.json'} is not as `selfcal doctor` writes it; run selfcal doctor {folder} again"
        ) from None
    with surfaced(f"cannot write to {folder}"):
        write_text(folder / PAGE, text)
    return folder / PAGE


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


def drawn(m: Mapping[str, Any]) -> dict[str, str]:
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


def pictures_in(file: Path) -> dict[str, np.ndarray]:
    """The images, if the file is whole and holds nothing else; sizes are checked before anything is unpacked."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            if sum(entry.file_size for entry in archive.zip.infolist()) > 4 * MOST_PIXELS:
                raise SelfcalError(f"{file} holds far more than the doctor's pictures; run selfcal doctor again")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, BadZipFile, KeyError) as error:
        raise SelfcalError(f"{file} cannot be read ({error}); run selfcal doctor again") from None
