"""What a training would take, as a table on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from selfcal.report.units import duration, scaled
from selfcal.training.plan import Plan


def print_plan(console: Console, plan: Plan) -> None:
    """A column per network, so that a narrow terminal holds it."""
    table = Table("", *(s.name for s in plan.stages), box=None, padding=(0, 2))
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("network", *(s.network for s in plan.stages))
    table.add_row("parameters", *(f"{s.parameters:,}" for s in plan.stages))
    table.add_row("steps", *(f"{s.steps:,}" for s in plan.stages))
    table.add_row("batch", *(str(s.batch) for s in plan.stages))
    if plan.processes > 1:
        table.add_row(
            f"of it, each of {plan.processes} processes", *(str(s.batch // plan.processes) for s in plan.stages)
        )
    table.add_row("FLOP per step", *(scaled(s.flops) for s in plan.stages))
    table.add_row("memory" + " of each" * (plan.processes > 1), *(f"{scaled(s.memory)}B" for s in plan.stages))
    table.add_row("seconds per step", *(f"{s.seconds:.3g}" for s in plan.stages))
    table.add_row("in all", *(duration(s.hours) for s in plan.stages))
    console.print(table)
    where = "this machine" if plan.processes == 1 else f"these {plan.processes} processes together"
    images = sum(s.steps * s.batch for s in plan.stages)
    batches = ", ".join(f"{s.name} {s.timed_batch}" for s in plan.stages)
    console.print(
        f"Training shows the networks {images:,} images; sampling ({plan.sampler}) "
        f"evaluates the guided score {plan.evaluations:,} times an image.\n"
        f"Time is for {where}, in all {duration(sum(s.hours for s in plan.stages))}, from steps timed on batches "
        f"of: {batches}. Nothing was written.",
        soft_wrap=True,
    )
