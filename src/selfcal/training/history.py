"""The log of a run as a table, and as a picture: for notebooks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from selfcal.core.escapes import figure as in_figure
from selfcal.core.escapes import html

SHOWN = 10  # rows of a long table, half of them from its end


@dataclass(frozen=True, repr=False)
class History:
    """Rows of log.jsonl, a dictionary each: {"network", "step", "ce", …}. pandas.DataFrame(history.rows) takes them.

    run.history()["classifier"]["ce"]   # of one network, one column
    """

    rows: list[dict[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def networks(self) -> list[str]:
        return list(dict.fromkeys(row["network"] for row in self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Any:
        """The rows of a network, or a column: the values of the rows that have one."""
        if name in self.networks:
            return History([row for row in self.rows if row["network"] == name])
        if name not in self.columns:
            raise KeyError(f"{name!r}; there are the networks {self.networks} and the columns {self.columns}")
        return [row[name] for row in self.rows if name in row]

    def _cells(self) -> list[list[str]]:
        rows = self.rows
        if len(rows) > SHOWN:
            gap = dict.fromkeys(self.columns, "…")
            rows = [*rows[: SHOWN // 2], gap, *rows[-SHOWN // 2 :]]
        return [[short(row.get(name, "")) for name in self.columns] for row in rows]

    def __repr__(self) -> str:
        table = [self.columns, *self._cells()]
        widths = [max(len(row[i]) for row in table) for i in range(len(self.columns))]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in table]
        return "\n".join([*lines, f"[{len(self)} lines]"])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html(name)}</th>" for name in self.columns)
        body = "".join("<tr>" + "".join(f"<td>{html(cell)}</td>" for cell in row) + "</tr>" for row in self._cells())
        return f"<table><tr>{head}</tr>{body}</table><p>{len(self)} lines</p>"


class Plot(Figure):
    """A figure that a notebook shows whatever its backend."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=110, bbox_inches="tight")
        return stream.getvalue()


def plot(history: History) -> Plot:
    """Every loss over the steps, a panel for each network."""
    networks = history.networks
    figure = Plot(figsize=(5.0 * max(1, len(networks)), 3.2), layout="constrained")
    for i, network in enumerate(networks):
        axes, rows = figure.add_subplot(1, len(networks), i + 1), history[network]
        for name in rows.columns:
            if name not in ("network", "step", "lr", "grad_norm", "event", "to", "lr_factor"):
                points = [(row["step"], row[name]) for row in rows if isinstance(row.get(name), float)]
                axes.plot([p[0] for p in points], [p[1] for p in points], lw=1, label=in_figure(name))
        axes.set_title(in_figure(network))
        axes.set_xlabel("step")
        axes.set_yscale("log")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
