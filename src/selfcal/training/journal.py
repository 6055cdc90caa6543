"""log.jsonl: a line per logged step and per rollback, the same lines however often a run was interrupted.

Nothing that depends on the clock goes into it. A run that continues from a checkpoint first cuts
what was written after that checkpoint, since it is about to be written again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfcal.core.files import append_line, surfaced, sync, write_text

ROLLED_BACK, DIVERGED = "rolled back", "diverged"


class Journal:
    """The log of a run whose networks are trained in the order of `networks`."""

    def __init__(self, path: Path, networks: Sequence[str]) -> None:
        self.path = path
        self.networks = networks

    def append(self, network: str, step: int, values: Mapping[str, Any]) -> None:
        line = {"network": network, "step": step, **{k: _plain(v) for k, v in values.items()}}
        with surfaced(f"cannot write {self.path}"):
            append_line(self.path, json.dumps(line))

    def sync(self) -> None:
        """Before a checkpoint is written: its step's lines must not be lost when it is not."""
        if self.path.exists():
            sync(self.path)

    def rewind(self, network: str, step: int, rollbacks: int) -> None:
        """Cut this network's lines to those written up to `step` of the attempt after `rollbacks` rollbacks."""
        if not self.path.exists():
            return
        kept: dict[str, list[str]] = {name: [] for name in self.networks}
        attempt = 0
        for raw, line in self._lines():
            if line["network"] != network:
                kept[line["network"]].append(raw)
            elif (attempt, line["step"]) <= (rollbacks, step):
                kept[network].append(raw)
            attempt += line["network"] == network and line.get("event") == ROLLED_BACK
        text = "".join(raw + "\n" for name in self.networks for raw in kept[name])
        with surfaced(f"cannot write {self.path}"):
            if text.encode() != self.path.read_bytes():
                write_text(self.path, text)

    def lines(self) -> list[dict[str, Any]]:
        """All of them, in the order they were written."""
        return [line for _, line in self._lines()] if self.path.exists() else []

    def _lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Whole lines of this run; the half line of a killed process is passed over."""
        for raw in self.path.read_text("utf-8", errors="replace").split("\n"):
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and line.get("network") in self.networks and isinstance(line.get("step"), int):
                yield raw, line


def _plain(value: Any) -> Any:
    """JSON has no word for infinities and not-a-numbers."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
