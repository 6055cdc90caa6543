"""The paper's networks at full size: what a forward pass spends beside its products, what an SC step needs."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import torch
from accelerate import Accelerator
from torch.utils._python_dispatch import TorchDispatchMode

from selfcal.data.dataset import Dataset, no_test
from selfcal.data.pool import Pool
from selfcal.methods.stage import Context
from selfcal.nets.ncsnpp import NCSNpp
from selfcal.training.plan import Trial
from selfcal.training.request import Request
from selfcal.training.stage import Batches

aten = torch.ops.aten
PRODUCTS = (aten.convolution, aten.mm, aten.addmm, aten.bmm, aten.baddbmm)


class Recorder(TorchDispatchMode):
    """Keeps every convolution and matrix product with its arguments; times all operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Callable[[], torch.Tensor]] = []
        self.seconds: dict[str, float] = defaultdict(float)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        began = time.perf_counter()
        result = function(*args, **(kwargs or {}))
        self.seconds[str(function._overloadpacket)] += time.perf_counter() - began
        smoothing = function._overloadpacket is aten.convolution and args[8] > 1  # resizing counts as the rest
        if function._overloadpacket in PRODUCTS and not smoothing:
            self.products.append(lambda: function(*args, **(kwargs or {})))
        return result


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@torch.no_grad()
def forward_against_its_products(batch: int = 4, rounds: int = 5) -> tuple[float, float, list[tuple[str, float]]]:
    """(seconds of a forward pass, of its products alone, where the time goes), in turn, the quickest of each."""
    network, x, sigma = NCSNpp().eval(), torch.randn(batch, 3, 32, 32), torch.ones(batch)
    network(x, sigma)
    with Recorder() as recorder:
        network(x, sigma)

    def products() -> None:
        for product in recorder.products:
            product()

    whole, alone = [], []
    for _ in range(rounds):
        whole.append(timed(lambda: network(x, sigma)))
        alone.append(timed(products))
    total = sum(recorder.seconds.values())
    shares = sorted(((name, s / total) for name, s in recorder.seconds.items()), key=lambda item: -item[1])
    return min(whole), min(alone), shares[:6]


def sc_step() -> None:
    """One self-calibrated step of the paper's classifier on two images; prints seconds and the process's peak in GB."""
    x = torch.rand(20, 3, 32, 32) * 2 - 1
    data = Dataset("noise", x, torch.arange(20) % 10, tuple("0123456789"), tuple(map(str, range(20))), *no_test(x))
    wanted = Request("noise", "cg-sc-all", "1/class", preset="cifar10").prepared(data)
    batches = Batches(wanted.data.x, Pool(wanted.labels))
    context = Context(wanted.settings, batches.pool.label_fraction, {})
    trial = Trial(wanted.method.stages(wanted.settings)[-1], context, batches, wanted.data, Accelerator())
    seconds = timed(lambda: trial.step(2))
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


def sc_step_in_a_process_of_its_own() -> tuple[float, float]:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    seconds, gigabytes = map(float, done.stdout.split())
    return seconds, gigabytes


if __name__ == "__main__":
    sc_step()
