"""A run's diagnosis: what was found, what was measured, and both as files beside the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from selfcal.core import escapes
from selfcal.core.files import file_sha256, surfaced, write_arrays, write_json, write_text
from selfcal.core.version import __version__
from selfcal.evaluation.diagnosis.commands import Commands
from selfcal.evaluation.diagnosis.findings import FAULT, Finding, findings
from selfcal.evaluation.diagnosis.measure import Examination, measured
from selfcal.training.directory import RunDirectory, divergence_in_words

FILE, PICTURES, SUSPECTS = "doctor.json", "doctor.npz", "doctor-suspects.csv"
MINUTES = 3.0


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """`run.diagnose().findings`: the faults first; printed, it is the summary that `selfcal doctor` gives."""

    about: Mapping[str, Any]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()  # what is good to know and nothing to mend
    measured: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)

    def in_json(self) -> dict[str, Any]:
        return {
            "selfcal": __version__,
            "about": dict(self.about),
            "findings": [finding.in_json() for finding in self.findings],
            "notes": list(self.notes),
            "measured": dict(self.measured),
        }

    def write(self, folder: Path) -> None:
        """doctor.json and what the page shows; labels in doubt as a table, for whoever corrects them."""
        with surfaced(f"cannot write to {folder}"):
            suspects = self.measured.get("suspects", {}).get("found", [])
            if suspects or (folder / SUSPECTS).exists():
                write_text(folder / SUSPECTS, as_table(suspects))
            write_arrays(folder / PICTURES, self.pictures)
            pictures = {"pictures_sha256": file_sha256(folder / PICTURES)}  # of this diagnosis, not of one before
            write_json(folder / FILE, self.in_json() | pictures)

    def __repr__(self) -> str:
        return in_words(self)


def as_table(suspects: list[dict[str, Any]]) -> str:
    """file,label,instead,odds."""
    rows = [(s["name"], s["label"], s["instead"], f"{s['odds']:.3g}") for s in suspects]
    return escapes.table([("file", "label", "instead", "odds"), *rows])


def in_words(diagnosis: Diagnosis) -> str:
    """For a terminal."""
    lines = []
    if not diagnosis.findings:
        lines.append("Nothing was found wrong.")
    for i, f in enumerate(diagnosis.findings, 1):
        lines += [f"{i}. {f.level}: {f.title}", f"   {f.number}.", f"   Do: {f.advice}:", f"   {f.command}"]
    return "\n".join([*lines, *diagnosis.notes])


def diagnosed(e: Examination) -> Diagnosis:
    """Everything is measured first."""
    found, commands = measured(e), Commands(e.run)
    return Diagnosis(
        about(e.run),
        tuple(findings(found.numbers, commands)),
        tuple(notes(found.numbers, commands)),
        found.numbers,
        found.pictures,
    )


def about(run: RunDirectory) -> dict[str, Any]:
    known = {"path": str(run.path), "method": run.method.name, "data": run.config["data"]["name"]}
    return known | {key: run.config[key] for key in ("labels", "labelled", "seed")}


def of_diverged(run: RunDirectory, report: Mapping[str, Any]) -> Diagnosis:
    """There is nothing to measure."""
    return Diagnosis(about(run), (diverged(report, Commands(run)),))


def diverged(report: Mapping[str, Any], commands: Commands) -> Finding:
    role = str(report["network"]).split("-")[0]
    rate = getattr(commands.run.settings, role).lr / 3
    return Finding(
        "diverged",
        FAULT,
        f"the {report['network']} network diverged",
        divergence_in_words(dict(report)).split(";")[0],
        "train it with a lower learning rate",
        commands.anew(f"{role}.lr={rate:.1g}"),
        {"step": report["step"]},
    )


def notes(m: Mapping[str, Any], commands: Commands) -> list[str]:
    scale, words = m["scale"], []
    if scale["scale"] is not None and scale["curve"]:
        words.append(
            f"Without further labels λ = {scale['scale']:g} is recommended: {commands.sampled(scale['scale'])}"
        )
    elif scale["scale"] is not None and scale["by"]:
        words.append(f"An evaluation chose λ = {scale['scale']:g} by {scale['by']}.")
    return words
