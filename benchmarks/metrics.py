"""The metrics against the libraries people know: time, and peak memory of a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time

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
a, b = draw({shape}, dtype=np.float32), draw({shape}, dtype=np.float32)
def memory(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) / 1024
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
before, began = memory("VmRSS"), time.perf_counter()
{call}
print(time.perf_counter() - began, memory("VmHWM") - before, memory("VmHWM"))
"""


def alone(rival: tuple[str, str], shape: tuple[int, int]) -> tuple[float, float, float]:
    """In a process of its own: seconds, peak MB on top of libraries and data, peak MB of the whole process."""
    program = PROGRAM.format(imports=rival[0], call=rival[1], shape=shape)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, own, whole = map(float, done.stdout.split()[-3:])  # prdc prints words of its own
    return seconds, own, whole


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


def neighbours_against_prdc() -> tuple[float, float, float, float]:
    """At 10,000 × 2048 our time, the call's peak memory and the process's ÷ prdc's; our peak in GB at 50,000 × 64."""
    ours, theirs = alone(OURS, (10_000, 2048)), alone(PRDC, (10_000, 2048))
    large = alone(OURS, (50_000, 64))
    for name, (seconds, own, whole) in {"ours": ours, "prdc": theirs, "ours, 50,000 × 64": large}.items():
        print(f"        {name}: {seconds:.0f} s, {own:.0f} MB for the call, {whole:.0f} MB with libraries and data")
    return ours[0] / theirs[0], ours[1] / theirs[1], ours[2] / theirs[2], large[2] / 1024
