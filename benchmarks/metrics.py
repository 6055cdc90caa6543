"""The metrics against the libraries people know: time, and peak memory of a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import torch
from scipy.linalg import sqrtm

from selfcal.metrics import fid

PRDC = (
    "import numpy as np; from prdc import compute_prdc; r = np.random.default_rng(0).standard_normal; {data}; "
    "compute_prdc(a, b, nearest_k=5)"
)
OURS = (
    "import numpy as np, torch; from selfcal.metrics import density_coverage; "
    "r = np.random.default_rng(0).standard_normal; {data}; "
    "density_coverage(torch.from_numpy(a), torch.from_numpy(b), k=5)"
)
SMALL = "a, b = r((10000, 2048), dtype=np.float32), r((10000, 2048), dtype=np.float32)"
LARGE = "a, b = r((50000, 64), dtype=np.float32), r((50000, 64), dtype=np.float32)"


def alone(program: str) -> tuple[float, float]:
    """(seconds, peak MB) of a Python program, imports and data left out of neither."""
    watched = f"{program}; import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, float(done.stdout.split()[-1])


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


def neighbours_against_prdc() -> tuple[float, float, float]:
    """(our time ÷ prdc's, our peak memory ÷ prdc's) at 10,000 × 2048, our peak in GB at 50,000 × 64."""
    base = alone("import numpy, torch, selfcal.metrics")[1]
    ours, theirs = alone(OURS.format(data=SMALL)), alone(PRDC.format(data=SMALL))
    large = alone(OURS.format(data=LARGE))
    print(f"        10,000 × 2048: ours {ours[0]:.0f} s, {ours[1]:.0f} MB; prdc {theirs[0]:.0f} s, {theirs[1]:.0f} MB")
    print(
        f"        50,000 × 64: {large[0]:.0f} s, {large[1]:.0f} MB, of which {base:.0f} MB are the libraries themselves"
    )
    return ours[0] / theirs[0], ours[1] / theirs[1], large[1] / 1024
