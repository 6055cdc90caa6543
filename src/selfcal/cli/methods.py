"""`selfcal methods`: the method table."""

from __future__ import annotations

from rich.table import Table

from selfcal.cli.terminal import app, out_console


@app.command
def methods() -> None:
    """Print the method table: networks, terms and weights, data each term sees, guidance, cost of a step.

    Example: selfcal methods
    """
    from selfcal.core.settings import Settings
    from selfcal.experiments import costs
    from selfcal.methods.stage import Context
    from selfcal.methods.table import METHODS

    step_costs = costs.measured()
    table = Table("method", "network", "loss: weight·term(data it sees)", "guides by", box=None, padding=(0, 1))
    table.add_column("step", justify="right")
    table.columns[2].overflow = "fold"
    for row in METHODS.values():
        for i, stage in enumerate(row.stages(Settings())):
            terms = stage.terms(Context.typical())
            loss = " + ".join(f"{t.weight:g}·{name}({stage.sees(t)})" for name, t in terms.items())
            cost = step_costs.get(costs.key(row.name, stage))
            cells = (stage.name, loss, row.guide if i == 0 else "", "–" if cost is None else f"{cost:.1f}")
            table.add_row(row.name if i == 0 else "", *cells)
    out_console.print(table)
    out_console.print("step: cost of a training step in plain cross-entropy steps, as measured by make bench")
