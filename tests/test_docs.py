"""The blocks of docs/building-blocks.md run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "building-blocks.md").read_text("utf-8")
BLOCKS = dict(
    zip(re.findall(r"^## (.*?)$", TEXT, flags=re.M), re.findall(r"```python\n(.*?)```", TEXT, flags=re.S), strict=True)
)


@pytest.mark.parametrize("title", BLOCKS)
def test_block(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(BLOCKS[title], {})
