"""The site's settings for Sphinx. Built by `make docs`, where every warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the extensions beside this file

from selfcal.core.version import __version__

project, author, release = "selfcal", "the selfcal contributors", __version__
copyright = "the selfcal contributors, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "made_from_code", "docstrings"]
exclude_patterns = ["site"]
nitpicky = True  # a reference that leads nowhere is an error
nitpick_ignore_regex = [("py:.*", ".*")]  # but for types in signatures: those of other libraries have no page here

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
smartquotes = False  # "3" is a string of Python
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "selfcal"
html_static_path = ["static"]
html_css_files = ["selfcal.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#a34a00", "color-brand-content": "#a34a00"},
    "dark_css_variables": {"color-brand-primary": "#ffab66", "color-brand-content": "#ffab66"},
}


def keep_together(app: object, page: str, source: list[str]) -> None:
    """± stays on the line of its number."""
    source[0] = source[0].replace("± ", "±\u00a0")


def setup(app: object) -> None:
    app.connect("source-read", keep_together)  # type: ignore[attr-defined]
