"""`selfcal info`: what a report of a problem should say of the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

from cyclopts import Parameter

from selfcal.cli.terminal import app, print_json, say
from selfcal.core.version import __version__

NEEDED = ("torch", "numpy", "scikit-learn", "accelerate", "safetensors")
EXTRAS = ("diffusers", "gradio", "efficientnet-lite-pytorch", "tensorboard", "wandb", "trackio", "torch-fidelity")


@app.command
def info(*, json_: Annotated[bool, Parameter(name="--json", negative=(), help="Print it as JSON.")] = False) -> None:
    """Versions, device and threads: what to send along when something is wrong.

    Example: selfcal info
    """
    about = collected()
    if json_:
        print_json(about)
        return
    width = max(map(len, about))
    for name, value in about.items():
        say(f"{name:{width}}  {value}")


def collected() -> dict[str, Any]:
    """Versions are read from the packages' metadata; only device and threads need torch itself."""
    about: dict[str, Any] = {
        "selfcal": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **{name: installed(name) or "missing" for name in NEEDED},
        **{name: found for name in EXTRAS if (found := installed(name))},
    }
    return about | device_and_threads() | cores()


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def device_and_threads() -> dict[str, Any]:
    """As torch says; a torch that cannot be imported is what one wants to hear of here."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"device": f"torch cannot be imported: {' '.join(str(error).split())}"}
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"device": ", ".join(f"cuda: {name}" for name in names) or "cpu", "threads": torch.get_num_threads()}


def cores() -> dict[str, Any]:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cores": allowed, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set")}
