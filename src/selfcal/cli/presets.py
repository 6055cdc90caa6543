"""`selfcal presets` and `selfcal settings`: what a training can start from, and all that can be changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from selfcal.cli.terminal import app, out_console, say
from selfcal.core.settings import NETWORKS, Settings, presets, purpose, resolve


@app.command(name="presets")
def list_presets() -> None:
    """Print the presets: what each is for. They hold only differences from the defaults.

    Example: selfcal presets
    """
    table = Table("preset", "for", "score model", box=None, padding=(0, 1))
    for name in presets():
        net = resolve(name).score
        table.add_row(name, purpose(name), f"{net.network} of width {net.width}, {net.steps:,} steps")
    out_console.print(table)
    say(
        "Without --preset, training takes the one that fits: digits, moons, cifar10 and cifar100 have their own, "
        "fashion takes fashion-small, other images go by their size. `selfcal settings --preset NAME` prints what "
        "one says."
    )


@app.command(name="settings")
def list_settings(*, preset: str | None = None) -> None:
    """Print every setting that --set can change: its default and what it means.

    Example: selfcal settings --preset photos64

    Parameters
    ----------
    preset
        Also what this preset makes of it; a row of `selfcal presets`.
    """
    chosen = None if preset is None else resolve(preset)
    heads = ["setting", "default", *([] if preset is None else [preset]), "meaning"]
    for title, rows in sections(chosen):
        table = Table(*heads, title=title, title_justify="left", box=None, padding=(0, 1))
        table.columns[0].no_wrap = True
        for row in rows:
            table.add_row(*row)
        out_console.print(table)
    say("For instance: --set terms.sc_weight=10; lists as --set score.multipliers=1,2,2")


def sections(chosen: Settings | None) -> Iterator[tuple[str, list[list[str]]]]:
    """By title, a row for each setting. The networks have the same ones, and are told together."""
    for section, field in Settings.model_fields.items():
        roles = NETWORKS if section == NETWORKS[0] else (section,)
        if section in NETWORKS[1:]:
            continue
        rows = []
        for name, setting in field.default.__class__.model_fields.items():
            values = [] if chosen is None else [value_of(chosen, roles, name)]
            rows.append([f"{section}.{name}", word(setting.default), *values, setting.description or ""])
        yield ", ".join(roles), rows


def value_of(settings: Settings, roles: tuple[str, ...], name: str) -> str:
    """Once where all roles agree, else one after the other."""
    values = [word(getattr(getattr(settings, role), name)) for role in roles]
    return values[0] if len(set(values)) == 1 else " | ".join(values)


def word(value: Any) -> str:
    """As --set takes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or '""'
    return "–" if value is None or value == {} else f"{value:g}" if isinstance(value, float) else str(value)
