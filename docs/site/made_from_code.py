"""A directive for what is made from the code when the site is built, so that it cannot be out of date:

```{made-from-code} settings
(words for those who read the source)
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from selfcal.cli.commands import app
from selfcal.cli.presets import sections, word
from selfcal.core.settings import Settings, preset_text, presets, purpose, resolve
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.experiments import costs
from selfcal.methods.stage import Context
from selfcal.methods.table import BEYOND, METHODS


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """In Markdown."""
    heads = list(heads)
    for row in (heads, ["---"] * len(heads), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def settings() -> Iterator[str]:
    for title, rows in sections(None):
        yield from ("", f"## {title}", "")
        yield from table(["setting", "default", "meaning"], ([f"`{key}`", f"`{d}`", text] for key, d, text in rows))


def methods() -> Iterator[str]:
    """A row for each network that a method trains."""
    measured, rows = costs.measured(), []
    for method in METHODS.values():
        for number, stage in enumerate(method.stages(Settings())):
            terms = stage.terms(Context.typical())
            loss = " + ".join(f"{t.weight:g} · {name} ({stage.sees(t)})" for name, t in terms.items())
            cost = measured.get(costs.key(method.name, stage))
            first = [f"`{method.name}`", method.title, method.guide] if number == 0 else ["", "", ""]
            rows.append([*first, stage.name, loss, "–" if cost is None else f"{cost:.1f}"])
    yield from table(
        ["method", "what it is", "guides by", "network", "loss: weight · term (who sees it)", "step"], rows
    )
    beyond = ", ".join(f"`{name}`" for name in BEYOND)
    yield from ("", f"{beyond} go beyond the paper's tables.")


def grids() -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for method in METHODS.values():
        for name, values in method.grids.items():
            if len(values) > 1:
                kinds.setdefault(f"{method.guide}, `{name}`", []).append(", ".join(word(v) for v in values))
    yield from table(["guidance, grid", "values"], ([kind, values[0]] for kind, values in kinds.items()))


def samplers() -> Iterator[str]:
    rows = (
        [f"`{name}`", (s.function.__doc__ or "").split("\n")[0], str(s.steps), str(s.evaluations(s.steps))]
        for name, s in SAMPLERS.items()
    )
    yield from table(["sampler", "what it is", "steps", "evaluations"], rows)


def list_of_presets() -> Iterator[str]:
    rows = []
    for name in presets():
        net = resolve(name).score
        rows.append(
            [f"[`{name}`](#preset-{name})", purpose(name), f"{net.network}, width {net.width}, {net.steps:,} steps"]
        )
    yield from table(["preset", "for", "score model"], rows)
    for name in presets():
        yield from ("", f"(preset-{name})=", f"## {name}", "", "```toml", *preset_text(name).splitlines(), "```")


def commands() -> Iterator[str]:
    """Every command with its options, from cyclopts, but for its own table of contents."""
    text = app.generate_docs(heading_level=1)
    yield from text[text.index("## selfcal ") :].splitlines()


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "grids": grids,
    "methods": methods,
    "presets": list_of_presets,
    "samplers": samplers,
    "settings": settings,
}


class MadeFromCode(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Callable[[str], str]]] = {}

    def run(self) -> list[nodes.Node]:
        if self.arguments[0] not in KINDS:
            raise self.error(f"made-from-code knows {', '.join(KINDS)}, not {self.arguments[0]}")
        return self.parse_text_to_nodes("\n".join(KINDS[self.arguments[0]]()), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("made-from-code", MadeFromCode)
    return {"parallel_read_safe": True}
