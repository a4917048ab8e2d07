"""Arithmetic of two or more values, bits, and running sums."""

import torch

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import axes_of, ordered, scalar, widened


@operator("Add", (7, 13, 14))
@widened
def add(_, a, b):
    """Sum with broadcasting."""
    return a + b


@operator("Sub", (7, 13, 14))
@widened
def sub(_, a, b):
    """Difference."""
    return a - b


@operator("Mul", (7, 13, 14))
@widened
def mul(_, a, b):
    """Product."""
    return a * b


@operator("Div", (7, 13, 14), restrictions="uint64 is refused")
def div(call, a, b):
    """Quotient; of integers the one rounded towards zero."""
    if a.dtype == torch.uint64:
        raise call.refuse("division of 64-bit unsigned integers")
    return _div(call, a, b)


@widened
def _div(_, a, b):
    if a.is_floating_point() or a.is_complex():
        return a / b
    return torch.div(a, b, rounding_mode="trunc")


@operator("Mod", (10, 13, 28), restrictions="uint64 is refused")
def mod(call, a, b):
    """Remainder with the sign of the divisor, or of the dividend with fmod = 1."""
    if a.dtype == torch.uint64:
        raise call.refuse("remainders of 64-bit unsigned integers")
    return _mod(call, a, b)


@widened
def _mod(call, a, b):
    return torch.fmod(a, b) if call["fmod"] else torch.remainder(a, b)


@operator("Pow", (7, 12, 13, 15), restrictions="of whole numbers without one power per row")
def power(call, a, b):
    """The base's type is the result's."""
    wide = a if a.dtype == torch.float64 else a.double()
    if a.is_floating_point():
        return torch.pow(a, b.to(a.dtype)) if a.dtype != torch.float16 else _exact(a, b)
    if b.is_floating_point():
        return torch.pow(wide, b.double()).to(a.dtype)
    if a.dtype == torch.int32 and b.numel() > 1 and b.shape[-1] == 1:
        raise call.refuse("a power per row of whole numbers, where onnxruntime wraps some only")
    whole = torch.pow(a.long(), b.long()).to(a.dtype)
    return _cut_off(whole, a, b) if a.dtype == torch.int32 else whole


# The largest number whose power of 0, 1, 2, ... has 31 bits.
_ROOTS = [2**31 - 1] * 2 + [int((2**31 - 0.5) ** (1 / power)) for power in range(2, 32)]


def _cut_off(whole, a, b):
    """Powers of 32-bit numbers as onnxruntime has them on x86: the least number where too large.

    It computes them in double precision; but one square or cube of several is a product, and wraps.
    """
    wraps = b.numel() == 1 and a.numel() > 1
    place = b.clamp(0, len(_ROOTS) - 1).long()
    most = torch.tensor(_ROOTS, dtype=a.dtype)[place.reshape(-1)].reshape(b.shape)
    large = (b > 1) & ((a > most) | (a < -most)) | (b < 0) & (a == 0)
    large = large & (b != 2) & (b != 3) if wraps else large
    return torch.where(large, torch.full_like(whole, -(2**31)), whole)


def _exact(a, b):
    return torch.pow(a.float(), b.float()).to(a.dtype)


@operator("Neg", (1, 6, 13))
def neg(_, x):
    """Negation."""
    return -x


@operator("Reciprocal", (1, 6, 13))
def reciprocal(_, x):
    """1 / x."""
    return torch.reciprocal(x)


@operator("Sum", (6, 8, 13))
@widened
def total(_, first, *others):
    """Sum of all inputs."""
    for other in others:
        first = first + other
    return first


@operator("Mean", (6, 8, 13))
def mean(_, *inputs):
    """Mean of all inputs."""
    return total(_, *inputs) / len(inputs)


@operator("Max", (6, 8, 12, 13))
@ordered
def maximum(_, first, *others):
    """Largest of all inputs, place by place; a NaN wins."""
    for other in others:
        first = torch.maximum(first, other)
    return first


@operator("Min", (6, 8, 12, 13))
@ordered
def minimum(_, first, *others):
    """Smallest of all inputs, place by place; a NaN wins."""
    for other in others:
        first = torch.minimum(first, other)
    return first


@operator("BitShift", (11, 28))
def bit_shift(call, x, y):
    """Bits moved left or right; by the width or more leaves 0, or the sign of a signed value.

    A negative count is taken as one beyond the width, as the reference does.
    """
    bits = x.element_size() * 8
    signed = x.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    a, count = x.to(torch.int64), y.to(torch.int64)
    beyond = (count < 0) | (count >= bits)
    count = torch.where(beyond, torch.zeros_like(count), count)
    none = torch.zeros_like(a)
    if call["direction"] == "LEFT":
        return torch.where(beyond, none, a << count).to(x.dtype)
    if signed:
        return torch.where(beyond, torch.where(a < 0, none - 1, none), a >> count).to(x.dtype)
    moved = a >> count
    if bits == 64:
        # The shift of a signed value drags the sign along; mask what it drags in.
        kept = (torch.ones_like(a) << (64 - count).clamp(max=63)) - 1
        moved = torch.where(count == 0, a, moved & kept)
    return torch.where(beyond, none, moved).to(x.dtype)


@operator("BitwiseAnd", (18,))
@widened
def bitwise_and(_, a, b):
    """Bit by bit."""
    return a & b


@operator("BitwiseOr", (18,))
@widened
def bitwise_or(_, a, b):
    """Bit by bit."""
    return a | b


@operator("BitwiseXor", (18,))
@widened
def bitwise_xor(_, a, b):
    """Bit by bit."""
    return a ^ b


@operator("BitwiseNot", (18,))
@widened
def bitwise_not(_, x):
    """All bits flipped."""
    return ~x


def _running(call, x, axis, function, first):
    (axis,) = axes_of([scalar(axis)], x.dim())
    if call["reverse"]:
        x = x.flip(axis)
    if call["exclusive"]:
        head = torch.full_like(x.narrow(axis, 0, 1), first)
        x = torch.cat([head, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    x = function(x, axis, dtype=x.dtype)
    return x.flip(axis) if call["reverse"] else x


@operator("CumSum", (11, 14), static=(1,))
@widened
def cumsum(call, x, axis):
    """Running sums along an axis."""
    return _running(call, x, axis, torch.cumsum, 0)


@operator("CumProd", (26,), static=(1,))
@widened
def cumprod(call, x, axis):
    """Running products along an axis."""
    return _running(call, x, axis, torch.cumprod, 1)
