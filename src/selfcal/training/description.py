"""What can be told of a run from its small files and hashes alone: no network is made and torch is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings
from selfcal.methods import table
from selfcal.methods.stage import Stage
from selfcal.training import checkpoints, records
from selfcal.training.journal import Journal
from selfcal.training.learned import learned

MARK = "config.json"


def config_of(path: Path) -> dict[str, Any]:
    """Its config.json, with a method that there is."""
    if not path.exists():
        raise SelfcalError(f"{path} does not exist; the folder of a run is needed")
    if not (path / MARK).is_file():
        raise SelfcalError(f"{path} is not a run directory: it has no {MARK}")
    config = records.read_config(path / MARK)
    table.find(config["method"])
    return config


def stages_of(config: dict[str, Any]) -> tuple[Stage, ...]:
    return table.find(config["method"]).stages(Settings.model_validate(config["settings"]))


def journal_of(path: Path, stages: tuple[Stage, ...]) -> Journal:
    return Journal(path / "log.jsonl", [stage.name for stage in stages])


def describe(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """What `selfcal show` prints."""
    settings, stages = Settings.model_validate(config["settings"]), stages_of(config)
    steps, hashes, damaged = {}, {}, {}
    for stage in stages:
        folder = checkpoints.folder_of(path, stage.name)
        if checkpoints.steps_saved(folder):
            try:
                steps[stage.name], hashes[stage.name] = checkpoints.average_sha256(folder)
            except checkpoints.Damaged as problem:
                damaged[stage.name] = str(problem)
    wanted = {stage.name: stage.settings(settings).steps for stage in stages}
    return {
        "path": str(path),
        **{key: config[key] for key in ("method", "labels", "labelled", "seed", "data")},
        "preset": config.get("preset"),
        "pace": config.get("pace"),
        "lengthened": config.get("lengthened", []),
        "replanned": config.get("replanned", []),
        "step": steps,
        "steps": wanted,
        "finished": steps == wanted,
        "damaged": damaged,
        "diverged": records.diverged(path),
        "pseudo_labels": records.pseudo_labels(path),
        "learned": learned(journal_of(path, stages).lines()),
        "weights_sha256": hashes,
        "settings": config["settings"],
        "metrics": records.metrics(path),
    }
