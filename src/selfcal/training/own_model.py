"""The score model of a run that adopted a module: the run has its weights, the user its code."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.nets.forms import ScoreModel
from selfcal.nets.own_module import Elsewhere, OwnModule

PROBED = (0.1, 1.0, 5.0)  # σ at which a network is recognised
UNLIKE = 0.05  # of what it gave at adoption; other machines differ by a thousandth


def own_model(model: Any, own: Callable[..., Any] | None, weights: Mapping[str, Tensor], path: Path) -> ScoreModel:
    """`model` as the settings make it, the user's module put in; without one, it says so when it is called."""
    elsewhere: Elsewhere = model.network
    elsewhere.run = str(path)
    if own is None:
        return model.eval()
    adopted = elsewhere.adopted
    try:
        filled = ScoreModel(OwnModule(apart(own), adopted["whole"]), model.form)
        filled.load_state_dict(dict(weights))
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise SelfcalError(f"the module given for {path} is not the one that it adopted: {first}") from None
    filled = filled.eval().requires_grad_(False)
    shape = tuple(adopted["shape"])
    for was, now in zip(adopted["probe"], probe(filled, shape), strict=True):
        if abs(was - now) > UNLIKE * max(abs(was), 0.1):
            raise SelfcalError(
                f"the module given for {path} has the weights of the one that it adopted and computes something else: "
                f"{now:.4g} where that gave {was:.4g}"
            )
    return filled


def opened(own: Callable[..., Any], config: Mapping[str, Any], path: object) -> Callable[..., Any]:
    """What `load` was given for a module: the module itself, or its constructor, which the user imported.

    The constructor's name in config.json is for people: a file of a stranger's decides nothing about what is called.
    """
    adopted = config["settings"].get("score", {}).get("adopted", {})
    if "form" not in adopted:
        raise SelfcalError(f"{path} adopted no module of your own; load it without module=")
    if isinstance(own, nn.Module) or adopted.get("function"):
        return own
    made = own() if callable(own) else own
    if not isinstance(made, nn.Module):
        raise SelfcalError(f"module= gives a {type(made).__name__}; an nn.Module or its constructor is needed")
    return made


def apart(own: Callable[..., Any]) -> Any:
    """A copy: what is done to the run's network leaves the user's alone."""
    try:
        return copy.deepcopy(own)
    except (RuntimeError, TypeError):  # of tensors within a graph, or of what cannot be copied
        return own


@torch.no_grad()
def probe(model: ScoreModel, shape: tuple[int, ...]) -> list[float]:
    """Numbers by which a network is known again: what it makes of one fixed noise."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    z, numbers = torch.randn((2, *shape), generator=torch.Generator().manual_seed(0)), []
    for sigma in PROBED:
        x = z * (0.25 + sigma**2) ** 0.5
        out = model.denoise(x.to(device), torch.full((2,), sigma, device=device))
        numbers += [round(float(out.mean()), 6), round(float(out.square().mean().sqrt()), 6)]
    return numbers
