"""The metrics against the libraries people know: time, and peak memory of a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import sqrtm

from selfcal.metrics import fid

PRDC = ("from prdc import compute_prdc", "compute_prdc(a, b, nearest_k=5)")
OURS = (
    "import torch; from selfcal.metrics import density_coverage",
    "density_coverage(torch.from_numpy(a), torch.from_numpy(b), k=5)",
)
PROGRAM = """
import time
import numpy as np
{imports}
draw = np.random.default_rng(0).standard_normal
a, b = draw({shape}, dtype="{kind}"), draw({shape}, dtype="{kind}")
def memory(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) / 1024
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
before, began = memory("VmRSS"), time.perf_counter()
{call}
print(time.perf_counter() - began, memory("VmHWM") - before, memory("VmHWM"))
"""


@dataclass(frozen=True)
class Cost:
    seconds: float
    call: float  # peak MB on top of libraries and data
    whole: float  # peak MB of the process


def alone(rival: tuple[str, str], shape: tuple[int, int], kind: str = "float32") -> Cost:
    """In a process of its own."""
    program = PROGRAM.format(imports=rival[0], call=rival[1], shape=shape, kind=kind)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return Cost(*map(float, done.stdout.split()[-3:]))  # prdc prints words of its own


def fid_against_sqrtm() -> tuple[float, float]:
    """(how many times faster, relative difference) for 500 images of 2048 features."""
    torch.manual_seed(0)
    a, b = torch.randn(500, 2048).double(), 1.2 * torch.randn(500, 2048).double() + 0.1
    fid(a, b)
    began = time.perf_counter()
    ours = fid(a, b)
    quick = time.perf_counter() - began
    began = time.perf_counter()
    x, y = np.cov(a.numpy(), rowvar=False), np.cov(b.numpy(), rowvar=False)
    root = sqrtm(x @ y)
    theirs = float((a.mean(0) - b.mean(0)).square().sum()) + np.trace(x + y - 2 * root.real)
    slow = time.perf_counter() - began
    return slow / quick, abs(ours - theirs) / theirs


def neighbours_against_prdc(kind: str) -> tuple[Cost, Cost]:
    """Ours and prdc's at 10,000 × 2048; its own example has float64 features, extractors give float32."""
    return alone(OURS, (10_000, 2048), kind), alone(PRDC, (10_000, 2048), kind)


def many_points() -> Cost:
    return alone(OURS, (50_000, 64))
