"""Convolution, normalisation and SiLU against torch's own, up to the derivative of a derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from selfcal.nets import second_derivatives
from selfcal.nets.second_derivatives import GroupNorm, convolve, silu

D = torch.float64


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=D, requires_grad=True)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    layer = GroupNorm(2, 4, eps=1e-6, dtype=D)
    del layer.weight, layer.bias
    layer.weight, layer.bias = weight, bias  # type: ignore[assignment]
    return layer(x)


Function = Callable[..., Tensor]
CASES: dict[str, tuple[Function, Function, list[tuple[int, ...]]]] = {
    "convolution": (
        lambda x, w, b: convolve(x, w, b, padding=1),
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        [(2, 4, 5, 6), (3, 4, 3, 3), (3,)],
    ),
    "every second pixel": (
        lambda x, w: convolve(x, w, stride=2),
        lambda x, w: F.conv2d(x, w, stride=2),
        [(2, 4, 7, 8), (3, 4, 3, 3)],
    ),
    "a filter per channel": (
        lambda x, w: convolve(x, w, stride=2, padding=1, groups=4),
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=4),
        [(2, 4, 6, 6), (4, 1, 4, 4)],
    ),
    "silu": (silu, F.silu, [(3, 7)]),
    "group norm": (
        group_norm,
        lambda x, w, b: F.group_norm(x, 2, w, b, 1e-6),
        [(3, 4, 5, 5), (4,), (4,)],
    ),
}


def derivatives(f: Function, inputs: Sequence[Tensor], by: Sequence[Tensor]) -> list[Tensor]:
    """f, its gradient by `by`, and the derivatives by all inputs of a function of both."""
    y = f(*inputs)
    first = torch.autograd.grad(y.sin().sum(), by, create_graph=True)
    loss = torch.stack([g.square().sum() + g.sin().sum() for g in first]).sum() + y.cos().sum()
    second = torch.autograd.grad(loss, list(inputs))
    return [y, *first, *second]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by_all", [False, True], ids=["gradient by x", "gradient by all"])
def test_values_and_two_derivatives_are_those_of_torch(name: str, by_all: bool) -> None:
    torch.manual_seed(0)
    ours, torchs, shapes = CASES[name]
    inputs = [tensor(*shape) for shape in shapes]
    by = inputs if by_all else inputs[:1]
    for mine, reference in zip(derivatives(ours, inputs, by), derivatives(torchs, inputs, by), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_plain_training_gets_the_same_gradients(name: str) -> None:
    torch.manual_seed(0)
    ours, torchs, shapes = CASES[name]
    inputs = [tensor(*shape) for shape in shapes]
    for f in (ours, torchs):
        f(*inputs).sin().sum().backward()
    mine = [t.grad.clone() for t in inputs if t.grad is not None]
    for t in inputs:
        t.grad = None
    torchs(*inputs).sin().sum().backward()
    for m, t in zip(mine, inputs, strict=True):
        torch.testing.assert_close(m, 2 * t.grad, rtol=1e-9, atol=1e-9)  # ours and torch's were added up


@pytest.mark.parametrize("name", CASES)
def test_a_third_derivative_is_that_of_torch_too(name: str) -> None:
    torch.manual_seed(0)
    ours, torchs, shapes = CASES[name]
    inputs = [tensor(*shape) for shape in shapes]

    def third(f: Function) -> Tensor:
        first = torch.autograd.grad(f(*inputs).sin().sum(), inputs[0], create_graph=True)[0]
        second = torch.autograd.grad(first.sin().sum(), inputs[0], create_graph=True)[0]
        return torch.autograd.grad(second.sin().sum(), inputs[0])[0]

    torch.testing.assert_close(third(ours), third(torchs), rtol=1e-9, atol=1e-9)


def test_an_inner_score_does_not_pay_for_gradients_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[bool]] = []
    original = second_derivatives._convolution_backward

    def noted(*args: object) -> Tensor:
        taken.append(args[-1])  # type: ignore[arg-type]
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(second_derivatives, "_convolution_backward", noted)
    x, w = tensor(2, 4, 5, 5), tensor(3, 4, 3, 3)
    torch.autograd.grad(convolve(x, w).sum(), x, create_graph=True)
    assert taken == [[True, False, False]]  # by x alone
