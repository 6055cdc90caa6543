"""Pages from templates: one look, and a name that a template misses is an error."""

from __future__ import annotations

from typing import Any

import jinja2


def render(template: str, **values: Any) -> str:
    """A template of this folder, which extends page.html, filled in."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("selfcal.report", ""), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(template).render(**values)
