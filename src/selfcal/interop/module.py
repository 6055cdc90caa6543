"""Any module or callable as a score model in our units, checked before it is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.core.errors import SelfcalError
from selfcal.data.dataset import Dataset
from selfcal.interop.conventions import Conventions
from selfcal.interop.denoising_check import call, check_denoising
from selfcal.interop.source import Adopted, of_score
from selfcal.nets.forms import ScoreModel
from selfcal.nets.own_module import OwnForm, OwnModule, own_form
from selfcal.training.own_model import apart, probe

Maker = str | Callable[..., Any] | None
"""A module's constructor: itself, or its name "my_package:make_net"."""


def from_module(net: Callable[..., Any], data: Dataset, conventions: Conventions, maker: Maker = None) -> Adopted:
    """Refuses what does not denoise the data under these conventions."""
    form = conventions.form()
    network: Any = apart(net)
    if isinstance(network, nn.Module):
        network = network.eval().requires_grad_(False)
    noted: dict[str, Any] = {"module": name_of(maker, net), "form": form, "shape": list(data.shape)}
    noted |= {"whole": False, "function": not isinstance(net, nn.Module)}
    reading: Any = own_form(noted)
    with torch.random.fork_rng(devices=[]):
        noted["whole"] = whole_levels(network, reading, data.x[:2])
        model = ScoreModel(OwnModule(network, noted["whole"]), reading).eval()
        low, high = form["sigmas"][0], form["sigmas"][-1]
        words = check_denoising(model, data.x, low, high, in_words(net))
        check_weights(model)
        settings = {
            "network": "adopted-module",
            "form": "adopted-module",
            "adopted": noted | {"probe": probe(model, data.shape)},
        }
    described = f'{in_words(net)} that predicts "{form["predicts"]}", {words}'
    return Adopted(model, of_score(settings), low, high, described, network)


def whole_levels(network: Callable[..., Any], form: OwnForm, x: Tensor) -> bool:
    """Whether levels between two numbers mean nothing to it: a table of embeddings, or a cast to whole numbers."""
    if not form.told or any(level != int(level) for level in form.told):
        return False
    middle = form.told[len(form.told) // 2]
    device = next(iter(network.parameters()), x).device if isinstance(network, nn.Module) else x.device

    def answer(level: float) -> Tensor:
        return OwnModule(network)(x.to(device), torch.full((len(x),), level, device=device))

    try:
        with torch.no_grad():
            between = answer(middle + 0.5)
            return bool((between == answer(middle)).all() or (between == answer(middle + 1)).all())
    except SelfcalError:
        raise
    except Exception:  # IndexError, RuntimeError: an embedding wants whole numbers
        whole = ScoreModel(OwnModule(network, whole=True), form)
        call(whole, x.to(device), torch.full((len(x),), middle, device=device))
        return True


def check_weights(model: ScoreModel) -> None:
    """They go into the run as they are."""
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise SelfcalError(f"the module keeps {name} that is no tensor; a run holds weights alone")
        if value.is_floating_point() and not value.isfinite().all():
            raise SelfcalError(f"the module holds NaN or infinite weights, for instance in {name}")


def name_of(maker: Maker, net: Callable[..., Any]) -> str | None:
    """ "my_package:make_net": recorded for people. It is never imported from there."""
    if maker is None:
        return None
    if isinstance(maker, str):
        package, colon, name = maker.partition(":")
        if not (colon and package and name and all(p.isidentifier() for p in (*package.split("."), *name.split(".")))):
            raise SelfcalError(f'module = {maker!r}: name the constructor as "my_package:make_net"')
        return maker
    made = maker()
    if not isinstance(net, nn.Module) or not isinstance(made, nn.Module):
        raise SelfcalError("module= is the constructor of an adopted nn.Module: a function that makes one")
    shapes = [{name: value.shape for name, value in m.state_dict().items()} for m in (made, net)]
    if shapes[0] != shapes[1]:
        raise SelfcalError("what module() makes has other weights than the adopted module")
    return f"{maker.__module__}:{getattr(maker, '__qualname__', type(maker).__name__)}"


def in_words(net: Callable[..., Any]) -> str:
    if isinstance(net, nn.Module):
        return f"{type(net).__name__} ({sum(p.numel() for p in net.parameters()):,} parameters)"
    return f"the function {getattr(net, '__name__', type(net).__name__)}"
