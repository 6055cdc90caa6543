"""The demo over several seeds as a Markdown table: python benchmarks/seeds.py runs/demo-*"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

COLUMNS = ("fid", "density", "coverage", "intra_density", "intra_coverage", "accuracy", "ece")


def chosen(folder: Path) -> dict[str, dict]:
    results = json.loads((folder / "results.json").read_text("utf-8"))
    return {r["method"]: r for r in results if r["chosen"]}


def main(folders: list[Path]) -> None:
    found = sorted((chosen(f) for f in folders), key=lambda best: best["cg"]["seed"])
    ratios = [best["cg-sc-all"]["intra_fid"] / best["cg"]["intra_fid"] for best in found]
    print("| seed | CG intra-FID (λ) | CG-SC-all intra-FID (λ) | ratio |\n|---|---|---|---|")
    for best, ratio in zip(found, ratios, strict=True):
        cells = [f"{best[m]['intra_fid']:.1f} ({best[m]['scale']:g})" for m in ("cg", "cg-sc-all")]
        print(f"| {best['cg']['seed']} | {cells[0]} | {cells[1]} | {ratio:.2f} |")
    print(f"| median | | | **{statistics.median(ratios):.2f}** |\n")
    print("| median over seeds | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    for method in ("cg", "cg-sc-all"):
        cells = [statistics.median(best[method][c] for best in found) for c in COLUMNS]
        print(f"| {method} | {cells[0]:.1f} | " + " | ".join(f"{c:.3f}" for c in cells[1:]) + " |")


if __name__ == "__main__":
    main([Path(p) for p in sys.argv[1:]])
