"""Convolution, group normalisation and SiLU with their second derivatives written out.

Self-calibration differentiates a gradient. torch can do that too, but its double backward of a convolution
takes weights' gradients as convolutions with kernels as large as an image, and that of normalisation and SiLU
is a chain of many passes over memory. Values and derivatives here are torch's, to rounding; whatever
is asked for beyond them is spelled out in plain operations.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

Pair = tuple[Tensor, Tensor]  # a factor for each example and channel (N, C), and what it multiplies (N, C, pixels)


class Conv(nn.Conv2d):
    """nn.Conv2d with zero padding and no dilation, quick to differentiate twice."""

    twice = True

    def forward(self, x: Tensor) -> Tensor:
        if not self.twice:
            return super().forward(x)
        return convolve(x, self.weight, self.bias, self.stride[0], int(self.padding[0]), self.groups)


class GroupNorm(nn.GroupNorm):
    """nn.GroupNorm, quick to differentiate twice."""

    twice = True

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.weight.dtype)  # means over many pixels: as exact as the weights, whatever made them
        if not self.twice or torch.compiler.is_compiling():
            return super().forward(x)
        normalised: Tensor = _Norm.apply(
            laid_out(x), _passing(self.weight), _passing(self.bias), self.num_groups, self.eps
        )
        return normalised


class SiLU(nn.SiLU):
    """nn.SiLU, quick to differentiate twice."""

    twice = True

    def forward(self, x: Tensor) -> Tensor:
        return silu(x) if self.twice else super().forward(x)


def differentiated_once(network: nn.Module) -> None:
    """Let its layers be torch's own: nobody trains a gradient of this network, and a step need not pay for it."""
    for layer in network.modules():
        if isinstance(layer, Conv | GroupNorm | SiLU):
            layer.twice = False


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, groups: int = 1
) -> Tensor:
    """F.conv2d, quick to differentiate twice."""
    if torch.compiler.is_compiling():  # what is compiled is differentiated once
        return F.conv2d(x, weight, bias, stride, padding, 1, groups)
    if torch.is_autocast_enabled(x.device.type):  # torch would cast within, and derivatives would not know of it
        kind = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
    out: Tensor = _Conv.apply(x, _passing(weight), _passing(bias), (stride, padding, groups))
    return out


def silu(x: Tensor) -> Tensor:
    """x · sigmoid(x), quick to differentiate twice."""
    if torch.compiler.is_compiling():
        return F.silu(x)
    out: Tensor = _Silu.apply(x)
    return out


def laid_out(x: Tensor, like: Tensor | None = None) -> Tensor:
    """x without gaps in memory: pixels or channels last, as `like`, or else as it comes."""
    last = (x if like is None else like).is_contiguous(memory_format=torch.channels_last)
    return x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _passing(weight: Tensor | None) -> Tensor | None:
    """The same weights, not a leaf: only of inner nodes does autograd tell whether anyone asked for their gradient."""
    return None if weight is None else weight.view_as(weight)


def _asked(ctx: Any, argument: int) -> bool:
    """Whether the gradient under way needs this argument's: an inner score is a gradient by x alone."""
    if not ctx.needs_input_grad[argument]:
        return False
    node = ctx.next_functions[argument][0]
    leaf = not node.next_functions
    return leaf or bool(torch._C._will_engine_execute_node(node))


# --- convolution ----------------------------------------------------------------------------------
# ⟨conv(x, w), g⟩ is linear in x, in w and in g. Its derivative by any of them is one of three products, and the
# derivative of such a product is again made of the other two.

How = tuple[int, int, int]  # stride, padding, groups


class _Conv(Function):
    """(x, w) -> conv(x, w)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, how: How) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.how = how
        return F.conv2d(x, w, bias, how[0], how[1], 1, how[2])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        if not torch.is_grad_enabled():  # nothing will be differentiated again: torch takes them all at once
            wanted = [ctx.needs_input_grad[0], _asked(ctx, 1), _asked(ctx, 2)]
            return *_convolution_backward(g, x, w, ctx.how, wanted), None
        by_x = _ConvByX.apply(g, w, x.shape, ctx.how) if ctx.needs_input_grad[0] else None
        by_w = _ConvByWeight.apply(x, g, w.shape, ctx.how) if _asked(ctx, 1) else None
        by_bias = g.sum((0, 2, 3)) if _asked(ctx, 2) else None
        return by_x, by_w, by_bias, None


class _ConvByX(Function):
    """(g, w) -> ∂⟨conv(x, w), g⟩/∂x."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, w: Tensor, shape: torch.Size, how: How) -> Tensor:
        ctx.save_for_backward(g, w)
        ctx.how = how
        return _convolution_backward(g, g.new_empty(1).expand(shape), w, how, [True, False, False])[0]

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        g, w = ctx.saved_tensors
        by_g = _Conv.apply(v, w, None, ctx.how) if ctx.needs_input_grad[0] else None
        by_w = _ConvByWeight.apply(v, g, w.shape, ctx.how) if _asked(ctx, 1) else None
        return by_g, by_w, None, None


class _ConvByWeight(Function):
    """(x, g) -> ∂⟨conv(x, w), g⟩/∂w."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor, shape: torch.Size, how: How) -> Tensor:
        ctx.save_for_backward(x, g)
        ctx.how = how
        return _convolution_backward(g, x, g.new_empty(1).expand(shape), how, [False, True, False])[1]

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        x, g = ctx.saved_tensors
        by_x = _ConvByX.apply(g, u, x.shape, ctx.how) if ctx.needs_input_grad[0] else None
        by_g = _Conv.apply(x, u, None, ctx.how) if ctx.needs_input_grad[1] else None
        return by_x, by_g, None, None


def _convolution_backward(g: Tensor, x: Tensor, w: Tensor, how: How, wanted: list[bool]) -> tuple[Tensor, ...]:
    """torch's own derivatives of a convolution by x, w and the bias, those that are wanted."""
    stride, padding, groups = how
    out: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        g, x, w, [w.shape[0]], [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, wanted
    )
    return out


# --- SiLU -----------------------------------------------------------------------------------------


class _Silu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.silu(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _SiluSlope.apply(g, *ctx.saved_tensors)


class _SiluSlope(Function):
    """(g, x) -> g · silu′(x)."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(g, x)
        out: Tensor = torch.ops.aten.silu_backward(g, x)
        return out

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        g, x = ctx.saved_tensors
        s = x.sigmoid()
        if torch.is_grad_enabled():  # a third derivative will be asked for
            return _SiluSlope.apply(v, x), v * g * s * (1 - s) * (2 + x * (1 - 2 * s))
        bend = torch.addcmul(x, x, s, value=-2).add_(2).mul_(s)  # silu″ = s (1 − s) (2 + x (1 − 2s)), in place
        bend.addcmul_(bend, s, value=-1)
        return torch.ops.aten.silu_backward(v, x), bend.mul_(v).mul_(g)


# --- group normalisation --------------------------------------------------------------------------
# With n = (x − mean)/std over a group, u = w g and P(u) = u − ⟨u⟩ − n ⟨u n⟩ (⟨·⟩ means over the group), the
# derivative of ⟨norm(x), g⟩ by x is D = P(u)/std. For ⟨D, v⟩, the derivative by u is P(v)/std, and by x it is
#   −(⟨v n⟩ u + ⟨u n⟩ v + n (⟨u v⟩ − ⟨u⟩⟨v⟩ − 3 ⟨u n⟩⟨v n⟩) − ⟨v n⟩⟨u⟩ − ⟨u n⟩⟨v⟩)/std².


class _Norm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        n, c = x.shape[:2]
        y, mean, rstd = torch.ops.aten.native_group_norm(x, w, bias, n, c, x[0, 0].numel(), groups, eps)
        ctx.save_for_backward(x, w, mean, rstd)
        ctx.groups, ctx.eps = groups, eps
        out: Tensor = y
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w, mean, rstd = ctx.saved_tensors
        by_weights = _asked(ctx, 1) or _asked(ctx, 2)
        if torch.is_grad_enabled() and by_weights:  # those will be differentiated again
            x, w = _apart(x, w)
            y = _spelled_out(x, w, ctx.groups, ctx.eps)
            return *torch.autograd.grad(y, (x, w), g, create_graph=True), g.sum((0, 2, 3)), None, None
        by_x, by_w, by_bias = _NormSlope.apply(laid_out(g, x), x, w, (mean, rstd), ctx.groups, ctx.eps, by_weights)
        return by_x, by_w, by_bias, None, None


class _NormSlope(Function):
    """(g, x, w) -> ∂⟨norm(x), g⟩/∂x, and where asked for those by w and the bias, which end there."""

    @staticmethod
    def forward(
        ctx: Any,
        g: Tensor,
        x: Tensor,
        w: Tensor,
        moments: tuple[Tensor, Tensor],
        groups: int,
        eps: float,
        by_weights: bool,
    ) -> Any:
        mean, rstd = moments
        ctx.save_for_backward(g, x, w, mean, rstd)
        ctx.groups, ctx.eps = groups, eps
        wanted = [True, by_weights, by_weights]
        n, c = x.shape[:2]
        by_x, *rest = torch.ops.aten.native_group_norm_backward(
            g, x, mean, rstd, w, n, c, x[0, 0].numel(), groups, wanted
        )
        ctx.mark_non_differentiable(*(t for t in rest if t is not None))
        return by_x, *rest

    @staticmethod
    def backward(ctx: Any, v: Tensor, *_: Tensor) -> Any:
        g, x, w, mean, rstd = ctx.saved_tensors
        if torch.is_grad_enabled():  # a third derivative will be asked for
            g, x, w = _apart(g, x, w)
            slope = torch.autograd.grad(_spelled_out(x, w, ctx.groups, ctx.eps), x, g, create_graph=True)
            return *torch.autograd.grad(slope, (g, x, w), v, create_graph=True), *[None] * 4
        (n, c), groups = x.shape[:2], ctx.groups
        flat_x, flat_g, flat_v = (t.contiguous().view(n, c, -1) for t in (x, g, v))
        size = flat_x.shape[-1] * c // groups

        def group_mean(t: Tensor) -> Tensor:  # sums over pixels (N, C) -> means over groups (N, G)
            return t.view(n, groups, -1).sum(-1) / size

        def each(t: Tensor) -> Tensor:  # (N, G) -> (N, C)
            return t.repeat_interleave(c // groups, 1)

        sum_g, sum_v = flat_g.sum(-1), flat_v.sum(-1)
        gx, vx, gv = _dot(flat_g, flat_x), _dot(flat_v, flat_x), _dot(flat_g, flat_v)
        mean_u, mean_v = group_mean(sum_g * w), group_mean(sum_v)
        un = (group_mean(gx * w) - mean * mean_u) * rstd
        vn = (group_mean(vx) - mean * mean_v) * rstd
        k = (group_mean(gv * w) - mean_u * mean_v - 3 * un * vn) * rstd
        minus = -rstd.square()
        by_x = _sum(
            each(minus * (-vn * mean_u - un * mean_v - k * mean)),
            (each(minus * vn) * w, flat_g),
            (each(minus * un), flat_v),
            (each(minus * k), flat_x),
        )
        of_v, of_x = each(rstd), each(-vn * rstd.square())  # P(v)/std = of_v v + of_x x + rest
        rest = each(rstd * (vn * rstd * mean - mean_v))
        by_g = _sum(rest * w, (of_v * w, flat_v), (of_x * w, flat_x))
        by_w = (of_v * gv + of_x * gx + rest * sum_g).sum(0)
        return by_g.view_as(g), by_x.view_as(x), by_w, *[None] * 4


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(N, C, pixels) twice -> sums of their products over pixels (N, C)."""
    n, c, pixels = a.shape
    return torch.bmm(a.reshape(n * c, 1, pixels), b.reshape(n * c, pixels, 1)).view(n, c)


def _sum(constant: Tensor, first: Pair, *rest: Pair) -> Tensor:
    """constant + Σ factor · values, each factor for a whole channel."""
    out = first[1] * first[0][..., None]
    out += constant[..., None]
    for factor, values in rest:
        out += values * factor[..., None]
    return out


def _apart(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same values, so that a derivative by one of them does not also run through another that depends on it."""
    return tuple(t.view_as(t) for t in tensors)


def _spelled_out(x: Tensor, w: Tensor, groups: int, eps: float) -> Tensor:
    """Normalisation without bias in plain operations, which autograd differentiates as often as it likes."""
    grouped = x.reshape(x.shape[0], groups, -1)
    variance, mean = torch.var_mean(grouped, -1, correction=0, keepdim=True)
    return ((grouped - mean) * (variance + eps).rsqrt()).view_as(x) * w[:, None, None]
