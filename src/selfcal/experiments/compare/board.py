"""The live table of a comparison: a mark per seed, what is running, how much time is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from selfcal.core import progress
from selfcal.experiments.compare.grid import Grid
from selfcal.experiments.compare.tasks import Task

MARKS = {
    "done": "[green]●[/]",
    "diverged": "[yellow]✗[/]",
    "failed": "[red]✗[/]",
    "running": "[yellow]◐[/]",
    "waiting": "[dim]○[/]",
}


class Board:
    """`with Board(grid) as board: board.show(running, seconds_left)`. Without a terminal, lines."""

    def __init__(self, grid: Grid, show: bool = True) -> None:
        self.grid, self.visible = grid, show
        self.live = (
            Live(console=progress.console, auto_refresh=False) if show and progress.console.is_terminal else None
        )
        self.states = {cell: cell.state(grid.out) for cell in grid.cells}
        self.left: float | None = None

    def __enter__(self) -> Board:
        if self.live:
            self.live.start()
        elif self.visible:
            progress.console.print(self.summary())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def begun(self, task: Task) -> None:
        """Without a terminal, a line: until the first cell is done one would not know whether anything happens."""
        if self.visible and not self.live:
            progress.console.print(f"{task.name}: begins", soft_wrap=True)

    def finished(self, task: Task, seconds_left: float | None) -> None:
        """A cell's mark and line; a score model has neither."""
        self.left = seconds_left
        for cell in [c for c in self.states if c == task]:
            self.states[cell] = cell.state(self.grid.out)
            if self.visible and not self.live:
                words = f"{cell.name}: {self.states[cell]} · {self.summary()}"
                progress.console.print(words, soft_wrap=True)

    def show(self, running: Sequence[Task], seconds_left: float | None) -> None:
        self.left = seconds_left
        if self.live:
            self.live.update(self.picture(running), refresh=True)

    def summary(self) -> str:
        count = list(self.states.values()).count
        lost = "".join(f", {count(state)} {state}" for state in ("diverged", "failed") if count(state))
        left = f", about {in_words(self.left)} left" if self.left else ""
        return f"{count('done')} of {len(self.states)} cells done{lost}{left}"

    def picture(self, running: Sequence[Task]) -> Group:
        labels = list(dict.fromkeys(c.labels for c in self.states))
        table = Table("method", *labels, box=None, padding=(0, 2))
        for method in dict.fromkeys(c.method for c in self.states):
            marks = []
            for y in labels:
                cells = sorted(c for c in self.states if (c.method, c.labels) == (method, y))
                marks.append("".join(MARKS["running" if c in running else self.states[c]] for c in cells))
            table.add_row(method, *map(Text.from_markup, marks))
        lines = [Text(f"running: {self.doing(task)}") for task in running]
        return Group(table, *lines, Text(self.summary()))

    def doing(self, task: Task) -> str:
        """The task and the last line of its log."""
        try:
            with (task.run(self.grid.out) / "log.jsonl").open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - 1000))
                last = json.loads(log.read().splitlines()[-1])
            return f"{task.name} · {last['network']} step {last['step']}"
        except (OSError, ValueError, IndexError, KeyError):
            return task.name


def in_words(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
