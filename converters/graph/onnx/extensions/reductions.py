"""Reductions over axes."""

import math

import torch

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import axes_of, ints, widened


def _axes(call, x, axes) -> list[int] | None:
    """The axes to reduce; None where nothing is to be done."""
    given = call["axes"] if axes is None else ints(axes)
    if not given:
        return None if call["noop_with_empty_axes"] else list(range(x.dim()))
    return axes_of(given, x.dim())


def _prod(x, axes, keep):
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def _neutral(dtype: torch.dtype, sign: int):
    """The lowest (`sign` < 0) or the highest value of a type."""
    if dtype.is_floating_point:
        return sign * torch.inf
    if dtype == torch.bool:
        return sign > 0
    bounds = torch.iinfo(dtype)
    return bounds.min if sign < 0 else bounds.max


def _extremum(function, empty):
    def reduce(x, axes, keep):
        if not x.numel():
            value = _neutral(x.dtype, empty)
            sizes = [1 if k in axes else n for k, n in enumerate(x.shape) if keep or k not in axes]
            return torch.full(sizes, value, dtype=x.dtype)
        if x.dtype == torch.bool:
            return function(x.to(torch.uint8), axes, keepdim=keep).to(torch.bool)
        return function(x, axes, keepdim=keep)

    return reduce


def _sum(x, axes, keep):
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


def _mean(x, axes, keep):
    if x.is_floating_point():
        return torch.mean(x, axes, keepdim=keep)
    # In whole numbers as onnxruntime, and so that no bit of a large sum is lost in float32.
    sums = _sum(x, axes, keep)
    return torch.div(sums, max(1, x.numel() // max(1, sums.numel())), rounding_mode="trunc")


def _logsumexp(x, axes, keep):
    return torch.logsumexp(x if x.is_floating_point() else x.float(), axes, keepdim=keep).to(
        x.dtype
    )


_REDUCTIONS = {
    "ReduceSum": (_sum, lambda x: x, (1, 11, 13)),
    "ReduceMean": (_mean, lambda x: x, (1, 11, 13, 18)),
    "ReduceMax": (_extremum(torch.amax, -1), lambda x: x, (1, 11, 12, 13, 18, 20)),
    "ReduceMin": (_extremum(torch.amin, 1), lambda x: x, (1, 11, 12, 13, 18, 20)),
    "ReduceProd": (_prod, lambda x: x, (1, 11, 13, 18)),
    "ReduceL1": (lambda x, axes, keep: _sum(torch.abs(x), axes, keep), torch.abs, (1, 11, 13, 18)),
    "ReduceL2": (
        lambda x, axes, keep: torch.sqrt(_sum(x * x, axes, keep)).to(x.dtype),
        torch.abs,
        (1, 11, 13, 18),
    ),
    "ReduceSumSquare": (
        lambda x, axes, keep: _sum(x * x, axes, keep),
        lambda x: x * x,
        (1, 11, 13, 18),
    ),
    "ReduceLogSum": (
        lambda x, axes, keep: torch.log(_sum(x, axes, keep)).to(x.dtype),
        torch.log,
        (1, 11, 13, 18, 28),
    ),
    "ReduceLogSumExp": (_logsumexp, lambda x: x, (1, 11, 13, 18, 28)),
}


def _register(name: str, function, alone, versions: tuple[int, ...]) -> None:
    """`alone` is what remains when no axis is reduced: the same of single elements."""

    @operator(name, versions, static=(1,))
    @widened
    def reduce(call, x, axes=None):
        found = _axes(call, x, axes)
        if not found:
            return alone(x)
        return function(x, found, bool(call["keepdims"]))


for _name, (_function, _alone, _versions) in _REDUCTIONS.items():
    _register(_name, _function, _alone, _versions)


def _arg_extremum(call, x, function, worst):
    """The place; what is no number is passed over, unless it is first, as in onnxruntime."""
    if x.is_floating_point():
        axis = axes_of([call["axis"]], x.dim())[0]
        is_first = x.narrow(axis, 0, 1).isnan()
        found = _arg_of_numbers(call, torch.nan_to_num(x, worst, math.inf, -math.inf), function)
        is_first = is_first if call["keepdims"] else is_first.squeeze(axis)
        return torch.where(is_first, torch.zeros_like(found), found)
    return _arg_of_numbers(call, x, function)


def _arg_of_numbers(call, x, function):
    axis = axes_of([call["axis"]], x.dim())[0]
    keep = bool(call["keepdims"])
    if not call["select_last_index"]:
        return function(x, axis, keepdim=keep)
    last = x.shape[axis] - 1
    return last - function(x.flip(axis), axis, keepdim=keep)


@operator("ArgMax", (1, 11, 12, 13))
def arg_max(call, x):
    """Place of the largest element, the first or the last of equals."""
    return _arg_extremum(call, x, torch.argmax, -math.inf)


@operator("ArgMin", (1, 11, 12, 13))
def arg_min(call, x):
    """Place of the smallest element, the first or the last of equals."""
    return _arg_extremum(call, x, torch.argmin, math.inf)
