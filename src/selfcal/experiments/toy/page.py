"""The toy's pictures, table and page, rebuilt from the files beside them alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from selfcal.core.errors import SelfcalError
from selfcal.core.files import read_json, write_bytes, write_text
from selfcal.experiments.toy.fields import draw_fields, draw_paths
from selfcal.experiments.toy.table import best_cells, markdown, measured, rows, sentences, title, wins
from selfcal.report.columns import GRADIENTS, columns
from selfcal.report.page import render
from selfcal.report.pictures import data_uri


def write_page(out: Path) -> Path:
    """table.md, fields.png, paths.png and report.html from results.json and the first seed's fields."""
    if not (out / "results.json").is_file():
        raise SelfcalError(f"{out} is not finished; give the same toy command again")
    report = read_json(out / "results.json")
    first = [r for r in report["results"] if r["seed"] == report["results"][0]["seed"] and not r["diverged"]]
    fields = {r["method"]: read_arrays(out / "seeds" / f"{r['seed']:04d}" / f"{r['method']}.npz") for r in first}
    pictures = {
        "fields": draw_fields(fields),
        "paths": draw_paths(fields, {r["method"]: r["paths_right"] for r in first}),
    }
    table = rows(report)
    page = render(
        Path(__file__).with_name("toy.html"),
        report=report,
        seed=first[0]["seed"],
        seeds=len({r["seed"] for r in report["results"]}),
        columns=GRADIENTS,
        rows=table,
        best=best_cells(table),
        findings=what_one_sees(report),
        sentences=sentences(report),
        pictures={name: data_uri(content) for name, content in pictures.items()},
    )
    write_text(out / "table.md", markdown(report))
    for name, content in pictures.items():
        write_bytes(out / f"{name}.png", content)
    file = out / "report.html"
    write_text(file, page)
    return file


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    if not file.is_file():
        raise SelfcalError(f"{file} is missing, which the pictures are made of")
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def what_one_sees(report: dict[str, Any]) -> list[str]:
    """What self-calibration does to the gradients, whichever way the numbers point; nothing without both rivals."""
    if not (measured(report, "cg") and measured(report, "cg-sc-all")):
        return []
    plain = {r.method: r.cells for r in rows(report) if r.variant == "plain"}
    lines = []
    for column in columns("gradient_mse", "gradient_cs", "cond_score_cs"):
        cg, sc = plain["cg"][column.key][0], plain["cg-sc-all"][column.key][0]
        victories, seeds = wins(report, "cg-sc-all", "cg", "plain")[column.key]
        change = f"{abs(sc / cg - 1):.0%} {'lower' if sc < cg else 'higher'}" if cg else "other"
        lines.append(
            f"{column.head}: {title('cg-sc-all')} has a median of {column.written(sc)}, {change} than "
            f"CG's {column.written(cg)}, and is the better one on {victories} of {seeds} seeds."
        )
    return lines
