"""A training small enough to be run, killed and compared by the hundred."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import selfcal
import selfcal.run  # here, so that forked children need not import it
from selfcal.training import checkpoints

LONG = os.environ.get("SELFCAL_FAULTS") == "long"
STEPS, SAVE_EVERY = 30, 5
SETTINGS = {
    "run.save_every": SAVE_EVERY,
    "run.log_every": 1,
    "score.width": 8,
    "classifier.width": 8,
    "score.blocks": 1,
    "classifier.blocks": 1,
    "score.batch": 16,
    "classifier.batch": 16,
}
METHOD = "cg-sc-all"  # a score model, then a classifier


def train(out, steps=STEPS, method=METHOD, **more):
    return selfcal.train("moons", method, 0.03, out, steps=steps, settings={**SETTINGS, **more})


def command(out, steps=STEPS, method=METHOD, **more):
    """The same as a user types it."""
    typed = ["train", "moons", "--method", method, "--labels", "0.03", "--steps", str(steps), "--out", str(out)]
    return typed + [word for key, value in {**SETTINGS, **more}.items() for word in ("--set", f"{key}={value}")]


def start(arguments, **more):
    """The command line in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "300"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "selfcal.cli", *arguments], env=environment, **pipes, **more)


def contents(out):
    """Every file of a run that training writes, by name: two runs are the same if these are."""
    out = Path(out)
    names = [p.relative_to(out).as_posix() for p in sorted(out.rglob("*")) if p.is_file()]
    return {name: (out / name).read_bytes() for name in names if name != ".lock"}


def assert_same(a, b):
    mine, theirs = contents(a), contents(b)
    assert sorted(mine) == sorted(theirs)
    assert [name for name in mine if mine[name] != theirs[name]] == []


def log(out):
    return [json.loads(line) for line in (Path(out) / "log.jsonl").read_text().splitlines()]


def newest(out, network):
    steps = checkpoints.steps_saved(Path(out) / "checkpoints" / network)
    return steps[-1] if steps else 0


def pulse(out):
    """Changes as soon as a process has begun to work on the run."""
    try:
        seen = (Path(out) / "log.jsonl").stat()
        return seen.st_mtime_ns, seen.st_size
    except FileNotFoundError:
        return Path(out).exists()


def repeated(out):
    """Steps that were done and are not saved: lines are written step by step, before checkpoints."""
    lines, path = {"score": 0, "classifier": 0}, Path(out) / "log.jsonl"
    for raw in path.read_text().split("\n") if path.exists() else ():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        lines[line["network"]] = line["step"]
    return max(done - newest(out, network) for network, done in lines.items())


def forked(work):
    """A child of this warm process, without the cost of importing torch again; returns its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def ended(child):
    """Its exit code, negative for the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(child):
    return ended(child) == -signal.SIGKILL
