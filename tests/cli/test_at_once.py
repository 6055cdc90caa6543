"""Commands that print what is written down answer at once: torch, which takes seconds to import, is not touched."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import selfcal

SCRIPT = """
import sys, time
from selfcal.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code, stop.code
print("heavy:", *sorted({"torch", "scipy", "sklearn", "matplotlib", "accelerate"} & {*sys.modules}))
print("seconds:", time.process_time())
"""

COMMANDS = [
    ["--help"],
    ["--version"],
    ["methods"],
    ["presets"],
    ["settings"],
    ["settings", "--preset", "photos64"],
    *([name, "--help"] for name in ("train", "show")),
]


def answer(*arguments):
    """(what it printed, which heavy modules it imported, seconds of the processor), in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    *lines, heavy, seconds = done.stdout.splitlines()
    return "\n".join(lines), heavy.split()[1:], float(seconds.split()[1])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_needs_no_torch(arguments):
    words, heavy, seconds = answer(*arguments)
    assert words.strip()
    assert not heavy
    assert seconds < 1


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run with metrics, whose guide was trained in several stages."""
    out = tmp_path_factory.mktemp("runs") / "moons"
    y = torch.arange(120) % 2
    data = (torch.randn(120, 2) + y[:, None], y)
    run = selfcal.train(data, "cg-sc-pl", 0.1, out, preset="moons", steps=4, show_progress=False)
    run.evaluate(scales=[1.0], count=50, steps=3, intervals=False, show_progress=False)
    return run


@pytest.mark.parametrize(("options", "measured"), [([], "50 samples"), (["--json"], '"samples": 50')])
def test_show_needs_no_torch(judged, options, measured):
    words, heavy, seconds = answer("show", judged.path, *options)
    for hash_ in judged.describe()["weights_sha256"].values():
        assert hash_[:16] in words
    assert measured in words, "its metrics are shown too"
    assert not heavy
    assert seconds < 1
