"""Quantised values: integers with a scale and a zero point."""

import math

import torch

from converters.graph.onnx.extensions.casting import cast_to
from converters.graph.onnx.extensions.convolution import WINDOWS, convolve
from converters.graph.onnx.operators import operator
from converters.graph.onnx.types import torch_type
from converters.graph.onnx.values import axes_of

MICROSOFT = "com.microsoft"
_NEWER = (19, 21, 23, 24, 25, 28)


def _spread(values, x, axis: int, block: int | None):
    """A scale or zero point per tensor, per slice of an axis, or per block, in the shape of `x`."""
    if values.numel() == 1:
        return values.reshape(())
    axis = axes_of([axis], x.dim())[0]
    if block:
        places = torch.arange(x.shape[axis]) // block
        return values.index_select(axis, places)
    shape = [1] * x.dim()
    shape[axis] = -1
    return values.reshape(shape)


def _rounded(values, dtype: torch.dtype):
    bounds = torch.iinfo(dtype)
    return torch.clamp(values, bounds.min, bounds.max).to(dtype)


@operator("QuantizeLinear", (1,), domain=MICROSOFT, restrictions="4-bit types are refused")
@operator("QuantizeLinear", (10, 13, *_NEWER), restrictions="4-bit types are refused")
def quantize(call, x, scale, zero=None):
    """Rounded x / scale + zero, clipped to the type."""
    axis, block = 1 if call["axis"] is None else call["axis"], call["block_size"]
    dtype = torch.uint8 if zero is None else zero.dtype
    if zero is None and call["output_dtype"]:
        dtype = torch_type(call["output_dtype"])
    precision = torch_type(call["precision"]) if call["precision"] else None
    scale = _spread(scale, x, axis, block)
    y = x.to(precision) / scale.to(precision) if precision else x / scale
    if dtype.is_floating_point:
        return cast_to(y, dtype, call["saturate"] != 0)
    # What is no number becomes the least one, as in onnxruntime.
    y = torch.nan_to_num(y, -math.inf, math.inf, -math.inf)
    y = torch.round(y).to(torch.float64 if y.dtype == torch.float64 else torch.float32)
    if zero is not None:
        y = y + _spread(_wide(zero), x, axis, block).to(y.dtype)
    return _rounded(y, dtype)


def _wide(values):
    return values.to(torch.int64)


@operator("DequantizeLinear", (1,), domain=MICROSOFT, restrictions="4-bit types are refused")
@operator("DequantizeLinear", (10, 13, *_NEWER), restrictions="4-bit types are refused")
def dequantize(call, x, scale, zero=None):
    """(x - zero) scale."""
    axis = 1 if call["axis"] is None else call["axis"]
    block = call["block_size"]
    wide = x.to(torch.float32)
    if zero is not None and not x.is_floating_point():
        wide = (x.to(torch.int64) - _spread(_wide(zero), x, axis, block)).to(torch.float32)
    y = wide * _spread(scale, x, axis, block).to(torch.float32)
    return y.to(torch_type(call["output_dtype"]) if call["output_dtype"] else scale.dtype)


@operator("DynamicQuantizeLinear", (11,))
def dynamic_quantize(_, x):
    """8-bit values with the scale and zero point of the value's own range, 0 included."""
    zero_ = torch.zeros((), dtype=x.dtype)
    high, low = torch.maximum(x.amax(), zero_), torch.minimum(x.amin(), zero_)
    # A range of 0 has no scale; any small one gives zeros, and no comparison stands in the graph.
    scale = torch.clamp_min(high - low, torch.finfo(x.dtype).tiny * 256) / 255
    zero = torch.round(torch.clamp(-low / scale, 0, 255)).to(torch.uint8)
    return quantised_by(x, scale, zero), scale, zero


def quantise_by_own_range(_, x):
    """8-bit values, their scale and zero point as quantisers write it before opset 11: of the
    range without 0, the zero point rounded down; see `own_range`. Of values above 0 it is
    negative, and runs over in 8 bits, as it does in onnxruntime."""
    high, low = x.amax(), x.amin()
    scale = (high - low) / 255
    # torch and XLA make other whole numbers of what 8 bits do not hold.
    zero = torch.remainder(torch.floor(-low / scale), 256).to(torch.uint8)
    return quantised_by(x, scale, zero), scale, zero


def quantised_by(x, scale, zero):
    """8-bit values by one scale and zero point."""
    return _rounded(torch.round(x / scale) + zero.to(x.dtype), torch.uint8)


def centred(values, zero, axis: int):
    """Integers around their zero point as exact float64."""
    wide = values.double()
    return wide if zero is None else wide - _spread(zero.double(), values, axis, None)


def requantised(sums, factor, zero, dtype: torch.dtype):
    """Accumulated integers, or float64 values, in the scale of the output."""
    y = torch.round(sums * factor)
    return _rounded(y if zero is None else y + zero.to(y.dtype), dtype)


@operator("QLinearConv", (10,), restrictions=f"{WINDOWS}; one output zero point")
def qlinear_conv(call, x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, bias=None):
    """Convolution of quantised values; sums are exact."""
    kernel = centred(weight, w_zero, 0)
    sums = convolve(call, centred(x, x_zero, 1), kernel, None if bias is None else bias.double())
    per_channel = w_scale.double()
    if w_scale.numel() > 1:
        per_channel = per_channel.reshape([-1] + [1] * (x.dim() - 2))
    factor = x_scale.double() * per_channel / y_scale.double()
    return requantised(sums, factor, y_zero, x.dtype if y_zero is None else y_zero.dtype)


@operator("QLinearMatMul", (10, 21), restrictions="4-bit types are refused")
def qlinear_matmul(call, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    """Product of quantised matrices; sums are exact."""
    if y_zero.is_floating_point():
        raise call.refuse("eight-bit floats")
    left = centred(a, a_zero, max(a.dim() - 2, 0))
    right = centred(b, b_zero, b.dim() - 1)
    factor = a_scale.double() * b_scale.double() / y_scale.double()
    return requantised(torch.matmul(left, right), factor, y_zero, y_zero.dtype)
