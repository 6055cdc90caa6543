"""The page: three tabs over the same runs. With the tabs, the only modules that import gradio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import fastapi
import gradio as gr

from selfcal.app import ask_tab, draw_tab, label_tab
from selfcal.app.asking import LARGEST_UPLOAD
from selfcal.app.gate import ASGI
from selfcal.run import Run

WAITING = 32  # requests that may queue; more are told so
STYLE = Path(__file__).with_name("style.css")
FONTS = ("system-ui", "sans-serif")  # gradio's own would be fetched from elsewhere


def page(runs: Mapping[str, Run]) -> gr.Blocks:
    names = list(runs)
    with gr.Blocks(title="selfcal", analytics_enabled=False) as blocks:
        gr.Markdown(f"## selfcal · {', '.join(names) if len(names) < 4 else f'{len(names)} runs'}")
        with gr.Row(visible=len(names) > 1):
            chosen = gr.Dropdown(names, value=names[0], label="Run", elem_id="run", filterable=False)
        with gr.Tab("Draw", id="draw"):
            draw_tab.lay_out(runs, chosen)
        with gr.Tab("Ask the guide", id="ask"):
            ask_tab.lay_out(runs, chosen)
        with gr.Tab("Label more", id="label"):
            label_tab.lay_out(runs, chosen)
    blocks.queue(max_size=WAITING, api_open=False)
    return blocks


def mounted(runs: Mapping[str, Run]) -> ASGI:
    """The page as an application, without gradio's own extras."""
    outer = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    return gr.mount_gradio_app(
        outer,
        page(runs),
        path="/",
        allowed_paths=[],
        max_file_size=LARGEST_UPLOAD,
        ssr_mode=False,
        show_error=False,
        footer_links=[],
        pwa=False,
        mcp_server=False,
        css=STYLE.read_text("utf-8"),
        theme=gr.themes.Default(font=FONTS, font_mono=("monospace",)),
    )
