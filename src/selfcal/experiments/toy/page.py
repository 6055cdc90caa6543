"""The toy's pictures, table and page, rebuilt from the files beside them alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from selfcal.core.errors import SelfcalError
from selfcal.core.files import surfaced, write_bytes, write_text
from selfcal.core.reading import as_written, read_arrays, read_record
from selfcal.experiments.toy.fields import draw_fields, draw_paths
from selfcal.experiments.toy.records import Report
from selfcal.experiments.toy.table import best_cells, markdown, measured, rows, sentences, title, wins
from selfcal.report.columns import GRADIENTS, columns
from selfcal.report.page import render
from selfcal.report.pictures import data_uri


def write_page(out: Path) -> Path:
    """table.md, fields.png, paths.png and report.html from results.json and the first seed's fields."""
    if not (out / "results.json").is_file():
        raise SelfcalError(f"{out} is not finished; give the same toy command again")
    report = read_record(out / "results.json", Report)
    with as_written(out, "selfcal toy", "remove the results that are odd and give the same toy command again"):
        texts, pictures = made_of(report, out)
    for name, text in texts.items():
        with surfaced(f"cannot write {out / name}"):
            write_text(out / name, text)
    for name, content in pictures.items():
        with surfaced(f"cannot write {out / name}.png"):
            write_bytes(out / f"{name}.png", content)
    return out / "report.html"


def made_of(report: dict[str, Any], out: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Texts by the names of their files, and pictures."""
    first = [r for r in report["results"] if r["seed"] == report["results"][0]["seed"] and not r["diverged"]]
    fields = {r["method"]: fields_of(out / "seeds" / f"{r['seed']:04d}" / f"{r['method']}.npz") for r in first}
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
    return {"table.md": markdown(report), "report.html": page}, pictures


def fields_of(file: Path) -> dict[str, np.ndarray]:
    if not file.is_file():
        raise SelfcalError(f"{file} is missing, which the pictures are made of")
    return read_arrays(file)


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
