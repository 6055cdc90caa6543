"""Pages from templates: one look, and a name that a template misses is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from selfcal.core.escapes import html


def render(template: Path, **values: Any) -> str:
    """A template, which extends this folder's page.html, filled in."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,  # jinja's own escape is the one that `html` uses
        finalize=lambda value: html(value) if isinstance(value, str) else value,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template.name).render(**values)
