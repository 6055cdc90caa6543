"""Every command, at every change that it makes to the disk: killed, interrupted, ended, or out of space.

Nothing that was there before is lost, nothing half-written is taken for whole, what is said is true, and the same
command, given again, ends with the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fates
import small
import stage

pytestmark = pytest.mark.timeout(3600 if small.LONG else 300)
SHORT_MOMENTS = 2  # of each command, in the short form
SLOW = ("compare", "adopt", "demo", "toy", "doctor")  # killed once there, and nothing else
ALIKE = ("train longer", "sample .zip", "save over .zip", "save over .png", "evaluate digits", "report grid")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        stage.in_one_process(patch)
        yield tmp_path_factory.mktemp("store")


@pytest.mark.parametrize(
    "command", [c for c in stage.COMMANDS if small.LONG or c.name not in ALIKE], ids=lambda c: c.name
)
def test_at_every_change(command, store, tmp_path, record_property):
    workspace, moments = tmp_path / "workspace", None if small.LONG else SHORT_MOMENTS
    if moments and command.name in SLOW:
        command, moments = replace(command, fates=(fates.KILL,)), 1
    stage.furnish(command, store, workspace)
    tally = fates.meet_fates(command, workspace, tmp_path / "scratch", moments)
    record_property("faults", [command.name, tally.moments, dict(tally.fates), dict(tally.wrong)])
    print(command.name, tally.moments, "changes;", dict(tally.fates), dict(tally.wrong), *tally.said[:12], sep="\n  ")
    assert not tally.said, "\n".join(tally.said[:12])
    assert tally.fates[fates.KILL] >= 1


def careless():
    """As no command may be: the old file is emptied before the new one is there."""
    content = b"new" * 1000
    with Path("old.json").open("wb") as stream:
        stream.write(content[:1500])
        stream.flush()
        Path("other").mkdir(exist_ok=True)
        stream.write(content[1500:])
    Path("gone.npz").unlink()
    (Path("other") / "x.json").write_text("{}")
    Path("gone.npz").write_bytes(b"old")


def test_that_this_test_can_fail(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name in ("old.json", "gone.npz"):
        (workspace / name).write_bytes(b"old")
    tally = fates.meet_fates(fates.Command("careless", careless, fates=(fates.KILL,)), workspace, tmp_path / "s")
    assert tally.wrong["lost"] >= 1, tally.said
    assert tally.wrong["half"] >= 1, tally.said
