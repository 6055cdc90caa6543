"""The demo's page: one self-contained HTML file, rebuilt from the files beside it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL.Image import Image
from pydantic import Field

from selfcal.core.comparable import check_comparable
from selfcal.core.files import surfaced, write_text
from selfcal.core.reading import Record, as_written, read_arrays, read_record
from selfcal.diffusion.pictures import grid, png
from selfcal.report.columns import COLUMNS, DEMO
from selfcal.report.figures import guide_over_sigma, metric_over_scale
from selfcal.report.page import render
from selfcal.report.pictures import data_uri
from selfcal.report.records import Level, Results

TITLES = {"cg": "CG, plain guidance", "cg-sc-all": "CG-SC-all, self-calibrated"}


class Guides(Record):
    """guides.json."""

    guides: dict[str, list[Level]]
    seconds: Annotated[float, Field(ge=0, le=1e12)]


def write_page(out: Path) -> Path:
    """report.html from results.json, guides.json and pictures.npz."""
    results = read_record(out / "results.json", Results)
    check_comparable(results)
    extra, images = read_record(out / "guides.json", Guides), read_arrays(out / "pictures.npz")
    with as_written(out, "selfcal demo", "give the same demo command again"):
        page = page_of(results, extra, images)
    file = out / "report.html"
    with surfaced(f"cannot write {file}"):
        write_text(file, page)
    return file


def page_of(results: list[dict[str, Any]], extra: dict[str, Any], images: dict[str, np.ndarray]) -> str:
    best = {r["method"]: r for r in results if r["chosen"]}
    return render(
        Path(__file__).with_name("demo.html"),
        best=best,
        first=next(iter(best.values())),
        titles=TITLES,
        columns=DEMO,
        ratio=best["cg-sc-all"]["intra_fid"] / best["cg"]["intra_fid"],
        sentences=what_one_sees(best, extra["guides"]),
        pictures={name: data_uri(png(picture)) for name, picture in pictures(images, list(best)).items()},
        labelled=count_images(images["labelled"]),
        intra_fid=metric_over_scale(results, COLUMNS["intra_fid"]),
        accuracy=metric_over_scale(results, COLUMNS["accuracy"]),
        guides=guide_over_sigma(extra["guides"]),
        seconds=extra["seconds"],
    )


def pictures(images: dict[str, np.ndarray], methods: list[str]) -> dict[str, Image]:
    """Real and labelled images, and each method's samples with a red frame around those that missed their class."""
    return {
        "real": grid(images["real"]),
        "labelled": grid(images["labelled"].swapaxes(0, 1)),
        **{m: grid(images[m], frames=images[f"{m} missed"]) for m in methods},
    }


def count_images(images: np.ndarray) -> int:
    """How many the picture shows: those that are not blank."""
    return int((images.reshape(*images.shape[:2], -1).max(-1) > -1).sum())


def what_one_sees(best: dict[str, dict[str, Any]], guides: dict[str, list[dict[str, float]]]) -> list[str]:
    """Two sentences, from the numbers and whichever way they point."""
    cg, sc = best["cg"], best["cg-sc-all"]
    ratio = sc["intra_fid"] / cg["intra_fid"]
    verdict = f"{1 - ratio:.0%} lower" if ratio < 1 else f"{ratio - 1:.0%} higher"
    middle = len(guides["cg"]) // 2 + 1
    noise = guides["cg"][middle]["sigma"]
    return [
        f"With {cg['labelled']} labelled images, self-calibration gives an intra-FID {verdict} than plain guidance "
        f"({sc['intra_fid']:.1f} against {cg['intra_fid']:.1f}), and {sc['accuracy']:.1%} instead of "
        f"{cg['accuracy']:.1%} of the images show the digit that was asked for.",
        f"The reason is the guide: at noise σ = {noise:.2g}, where a sample's class is being decided, the "
        f"self-calibrated classifier is right {guides['cg-sc-all'][middle]['accuracy']:.0%} of the time and "
        f"the plain one {guides['cg'][middle]['accuracy']:.0%}, with calibration errors of "
        f"{guides['cg-sc-all'][middle]['ece']:.2f} and {guides['cg'][middle]['ece']:.2f}.",
    ]
