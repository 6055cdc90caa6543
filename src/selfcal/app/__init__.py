"""The local web page: draw, ask the guide, label more. Only `page.py` and `server.py` import gradio."""
