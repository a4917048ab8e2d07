"""onnxruntime's layers over quantised values, as its quantiser writes them (format QOperator).

Source: com.microsoft.QLinear* and QGemm in onnxruntime's docs/ContribOperators.md. Each computes on
the real values, here in float64, and quantises the result; onnxruntime computes some in float32, so
a value halfway between two whole numbers may become the other one.
"""

import torch
import torch.nn.functional as F

from converters.graph.onnx.extensions.pooling import average_pool
from converters.graph.onnx.extensions.quantisation import MICROSOFT, centred, requantised
from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import axes_of

_ONE_AXIS = 13
"""The opset since which a softmax goes over one axis."""


def _real(x, scale, zero):
    """The float64 values that whole ones stand for."""
    return centred(x, zero, 0) * scale.double()


def _quantised(values, scale, zero, dtype: torch.dtype):
    """Real values as whole ones."""
    return requantised(values, 1 / scale.double(), zero, zero.dtype if zero is not None else dtype)


def _layer(function):
    """An operator of one quantised value, made of a function `(call, real values)`."""

    def apply(call, x, x_scale, x_zero, y_scale, y_zero=None):
        return _quantised(function(call, _real(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)

    apply.__doc__ = function.__doc__
    return apply


def _pair(function):
    """An operator of two quantised values, made of a function of the real ones."""

    def apply(_, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero=None):
        values = function(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
        return _quantised(values, y_scale, y_zero, a.dtype)

    return apply


for _name, _function in (("QLinearAdd", torch.add), ("QLinearMul", torch.mul)):
    operator(_name, (1,), domain=MICROSOFT)(_pair(_function))


@operator("QLinearGlobalAveragePool", (1,), domain=MICROSOFT, restrictions="channels first")
@_layer
def global_average_pool(call, values):
    """Mean over all places."""
    _channels_first(call)
    return values.mean(dim=tuple(range(2, values.dim())), keepdim=True)


@operator("QLinearAveragePool", (1,), domain=MICROSOFT, restrictions="channels first")
@_layer
def quantised_average_pool(call, values):
    """Mean of each window."""
    _channels_first(call)
    return average_pool(call, values)


@operator("QLinearLeakyRelu", (1,), domain=MICROSOFT)
@_layer
def leaky_relu(call, values):
    """x, below zero alpha x."""
    return F.leaky_relu(values, 0.01 if call["alpha"] is None else call["alpha"])


@operator("QLinearSigmoid", (1,), domain=MICROSOFT)
@_layer
def sigmoid(_, values):
    """Logistic function."""
    return torch.sigmoid(values)


@operator("QLinearSoftmax", (1,), domain=MICROSOFT)
@_layer
def softmax(call, values):
    """exp, normalised over an axis; as of opset 12 and older, over it and all behind it."""
    axis = axes_of([-1 if call["axis"] is None else call["axis"]], values.dim())[0]
    if (call["opset"] or _ONE_AXIS) >= _ONE_AXIS:
        return torch.softmax(values, axis)
    return torch.softmax(values.flatten(axis), axis).reshape(values.shape)


@operator("QLinearReduceMean", (1,), domain=MICROSOFT)
@_layer
def reduce_mean(call, values):
    """Mean over axes."""
    axes = axes_of(call["axes"] or range(values.dim()), values.dim())
    return values.mean(dim=tuple(axes), keepdim=call["keepdims"] is None or bool(call["keepdims"]))


@operator("QLinearConcat", (1,), domain=MICROSOFT)
def concat(call, y_scale, y_zero, *parts):
    """Values of several scales, joined along an axis."""
    if not parts or len(parts) % 3:
        raise call.refuse(f"{len(parts)} inputs, expected three of each value")
    values = [_real(*parts[k : k + 3]) for k in range(0, len(parts), 3)]
    axis = axes_of([call["axis"] or 0], values[0].dim())[0]
    return _quantised(torch.cat(values, axis), y_scale, y_zero, parts[0].dtype)


@operator("QGemm", (1,), domain=MICROSOFT)
def gemm(call, a, a_scale, a_zero, b, b_scale, b_zero, c=None, y_scale=None, y_zero=None):
    """alpha A B plus a bias in units of the product; floating where no scale of it is given."""
    left, right = centred(a, a_zero, 0), centred(b, b_zero, 0 if call["transB"] else 1)
    left = left.t() if call["transA"] else left
    sums = torch.matmul(left, right.t() if call["transB"] else right)
    sums = sums if c is None else sums + c.double()
    alpha = 1.0 if call["alpha"] is None else call["alpha"]
    factor = alpha * a_scale.double() * b_scale.double()
    if y_scale is None:
        return (sums * factor).to(a_scale.dtype)
    dtype = a.dtype if y_zero is None else y_zero.dtype
    return requantised(sums, factor / y_scale.double(), y_zero, dtype)


def _channels_first(call) -> None:
    if call["channels_last"]:
        raise call.refuse("channels last")
