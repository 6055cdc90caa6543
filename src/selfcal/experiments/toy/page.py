"""The toy's pictures, table and page, rebuilt from the files beside them alone."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from selfcal.core.errors import SelfcalError
from selfcal.experiments.toy.fields import draw_fields, draw_paths
from selfcal.experiments.toy.table import COLUMNS, best_cells, markdown, measured, rows, sentences, title, wins
from selfcal.report.page import render


def write_page(out: Path) -> Path:
    """table.md, fields.png, paths.png and report.html from results.json and the first seed's fields."""
    if not (out / "results.json").is_file():
        raise SelfcalError(f"{out} is not finished; give the same toy command again")
    report = json.loads((out / "results.json").read_text("utf-8"))
    first = [r for r in report["results"] if r["seed"] == report["results"][0]["seed"] and not r["diverged"]]
    fields = {r["method"]: read_arrays(out / "seeds" / f"{r['seed']:04d}" / f"{r['method']}.npz") for r in first}
    (out / "table.md").write_text(markdown(report), encoding="utf-8")
    draw_fields(fields, out / "fields.png")
    draw_paths(fields, {r["method"]: r["paths_right"] for r in first}, out / "paths.png")
    table = rows(report)
    page = render(
        Path(__file__).with_name("toy.html"),
        report=report,
        seed=first[0]["seed"],
        seeds=len({r["seed"] for r in report["results"]}),
        columns={c: f"{head} {'↓' if lower else '↑'}" for c, (head, lower, _) in COLUMNS.items()},
        rows=table,
        best=best_cells(table),
        seen=what_one_sees(report),
        sentences=sentences(report),
        fields=picture(out / "fields.png"),
        paths=picture(out / "paths.png"),
    )
    file = out / "report.html"
    file.write_text(page, encoding="utf-8")
    return file


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    if not file.is_file():
        raise SelfcalError(f"{file} is missing, which the pictures are made of")
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def picture(file: Path) -> str:
    """A PNG file as a data URI."""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()


def what_one_sees(report: dict[str, Any]) -> list[str]:
    """What self-calibration does to the gradients, whichever way the numbers point; nothing without both rivals."""
    if not (measured(report, "cg") and measured(report, "cg-sc-all")):
        return []
    plain = {r.method: r.cells for r in rows(report) if r.variant == "plain"}
    said = []
    for column in ("gradient_mse", "gradient_cs", "cond_score_cs"):
        (head, _, digits), cg, sc = COLUMNS[column], plain["cg"][column][0], plain["cg-sc-all"][column][0]
        won, of = wins(report, "cg-sc-all", "cg", "plain")[column]
        change = f"{abs(sc / cg - 1):.0%} {'lower' if sc < cg else 'higher'}" if cg else "other"
        said.append(
            f"{head}: {title('cg-sc-all')} has a median of {sc:.{digits}f}, {change} than CG's {cg:.{digits}f}, "
            f"and is the better one on {won} of {of} seeds."
        )
    return said
