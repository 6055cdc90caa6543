"""The scripts that people copy run as they are, in small form; the notebook runs from its first cell to its last."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"
LEAVES = {
    "folder": "threes-and-fives.zip",
    "adopt_pipeline": "pipeline/model_index.json",
    "adopt_module": "threes.png",
    "regulariser": None,
    "sweep": "runs/sweep/metrics.json",
}


def test_every_script_is_tested_and_listed():
    scripts = sorted(p.stem for p in EXAMPLES.glob("*.py"))
    assert scripts == sorted(LEAVES)
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert all(f"({name}.py)" in listed for name in scripts)


@pytest.mark.parametrize("name", LEAVES)
def test_a_script_runs(tmp_path, name):
    if name == "adopt_pipeline":
        pytest.importorskip("diffusers")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", "20"], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if LEAVES[name]:
        assert (tmp_path / LEAVES[name]).exists()
    assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) <= 60


def test_the_notebook_runs_from_start_to_end(tmp_path, monkeypatch):
    """And shows what it says: a table, a plot, a captioned grid, one picture."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("STEPS", "20")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    book = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "outputs are not committed"
    nbclient.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [o for cell in book.cells for o in cell.get("outputs", ()) if o.output_type in ("execute_result",)]
    texts = [o.data.get("text/plain", "") for o in shown]
    assert any(text.startswith("Run('runs/notebook': cg-sc-all on digits") for text in texts), texts
    assert any("<table>" in o.data.get("text/html", "") for o in shown)
    pictures = [Image.open(io.BytesIO(base64.b64decode(o.data["image/png"]))) for o in shown if "image/png" in o.data]
    assert len(pictures) == 3, "a plot, a grid, an image"
    progress = [o.get("text", "") + str(o.get("data", "")) for c in book.cells[:2] for o in c.get("outputs", ())]
    assert any("classifier" in text for text in progress), "progress is on in notebooks"
