"""Small conversions that many operators share."""

import functools
from collections.abc import Callable

import numpy as np
import torch

# torch computes with these only in a few operations; in the wider type results are the same.
WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
_SIGN = -(2**63)


def ints(values) -> list[int]:
    """A static input, tensor or array, as Python integers."""
    return [int(v) for v in np.asarray(values).reshape(-1).tolist()]


def floats(values) -> list[float]:
    """A static input as Python floats."""
    return [float(v) for v in np.asarray(values).reshape(-1).tolist()]


def scalar(values):
    """The one element of a static input as a Python number."""
    return np.asarray(values).reshape(-1).tolist()[0]


def widened(function: Callable) -> Callable:
    """Compute unsigned integers that torch lacks in a wider type; exact modulo their size.

    64-bit unsigned values keep their bits, so this fits what wraps around (sums, products, bits,
    moves), and nothing that orders or divides.
    """

    @functools.wraps(function)
    def computed(call, *inputs):
        narrow = next((x.dtype for x in inputs if isinstance(x, torch.Tensor)), None)
        if narrow not in WIDER:
            return function(call, *inputs)
        wide = [
            x.to(WIDER[x.dtype]) if isinstance(x, torch.Tensor) and x.dtype in WIDER else x
            for x in inputs
        ]
        return _back(function(call, *wide), WIDER[narrow], narrow)

    return computed


def _back(result, wide: torch.dtype, narrow: torch.dtype):
    if isinstance(result, tuple):
        return tuple(_back(part, wide, narrow) for part in result)
    return result.to(narrow) if result.dtype == wide else result


def ordered(function: Callable) -> Callable:
    """Like `widened` for what orders values: 64-bit unsigned ones are shifted by half the range."""

    @functools.wraps(function)
    def computed(call, *inputs):
        shifted = [
            x.to(torch.int64) ^ _SIGN
            if isinstance(x, torch.Tensor) and x.dtype == torch.uint64
            else x.to(WIDER[x.dtype])
            if isinstance(x, torch.Tensor) and x.dtype in WIDER
            else x
            for x in inputs
        ]
        narrow = next((x.dtype for x in inputs if isinstance(x, torch.Tensor)), None)
        result = function(call, *shifted)
        if narrow not in WIDER or result.dtype != WIDER[narrow]:
            return result
        return (result ^ _SIGN if narrow == torch.uint64 else result).to(narrow)

    return computed


def axes_of(axes, rank: int) -> list[int]:
    """Axes from 0, negative ones counted from the end; raises IndexError where out of range."""
    found = [int(axis) + rank * (int(axis) < 0) for axis in axes]
    if any(not 0 <= axis < rank for axis in found):
        raise IndexError(f"axes {found[:8]} of a value with {rank} dimensions")
    return found
