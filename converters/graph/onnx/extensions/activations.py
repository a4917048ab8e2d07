"""Activation functions."""

import math

import torch
import torch.nn.functional as F

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import ordered


@operator("Relu", (1, 6, 13, 14))
def relu(_, x):
    """max(x, 0)."""
    return F.relu(x)


@operator("LeakyRelu", (1, 6, 16))
def leaky_relu(call, x):
    """x where positive, alpha x elsewhere."""
    return F.leaky_relu(x, call["alpha"])


@operator("PRelu", (6, 7, 9, 16))
def prelu(call, x, slope):
    """x where positive, slope x elsewhere; the slope is broadcast from the last axis."""
    if call.version < 7 and slope.dim() == 1 and x.dim() > 2:
        slope = slope.reshape([-1] + [1] * (x.dim() - 2))
    return torch.where(x < 0, slope * x, x)


@operator("ThresholdedRelu", (10, 22))
def thresholded_relu(call, x):
    """x where above alpha, 0 elsewhere."""
    return torch.where(x > call["alpha"], x, torch.zeros_like(x))


def exponential(x, alpha: float, width: float = 1.0):
    """x where positive, alpha (exp(x / width) - 1) elsewhere, which is 0 close to 0.

    Where torch has expm1, onnxruntime takes 1 from the exponential.
    """
    # What is not taken must not run over, gradients neither.
    low = torch.where(x > 0, torch.zeros_like(x), x)
    return torch.where(x > 0, x, alpha * (torch.exp(low if width == 1 else low / width) - 1))


@operator("Elu", (1, 6, 22))
def elu(call, x):
    """x where positive, alpha (exp(x) - 1) elsewhere."""
    return exponential(x, call["alpha"])


@operator("Celu", (12, 28))
def celu(call, x):
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return exponential(x, call["alpha"], call["alpha"])


@operator("Selu", (1, 6, 22))
def selu(call, x):
    """gamma times elu."""
    return call["gamma"] * exponential(x, call["alpha"])


@operator("Sigmoid", (1, 6, 13))
def sigmoid(_, x):
    """1 / (1 + exp(-x))."""
    return torch.sigmoid(x)


@operator("HardSigmoid", (1, 6, 22))
def hard_sigmoid(call, x):
    """A line clipped to [0, 1]."""
    return torch.clamp(call["alpha"] * x + call["beta"], 0, 1)


@operator("HardSwish", (14, 22))
def hard_swish(_, x):
    """x times a hard sigmoid of slope 1/6."""
    return F.hardswish(x)


@operator("Swish", (24,))
def swish(call, x):
    """x sigmoid(alpha x)."""
    return x * torch.sigmoid(call["alpha"] * x)


@operator("Mish", (18, 22))
def mish(_, x):
    """x tanh(softplus(x))."""
    return x * torch.tanh(F.softplus(x))


@operator("Gelu", (20,))
def gelu(call, x):
    """x times the normal distribution function, or its tanh approximation."""
    return F.gelu(x, approximate=call["approximate"])


@operator("Softplus", (1, 22))
def softplus(_, x):
    """log(1 + exp(x))."""
    return torch.logaddexp(x, torch.zeros_like(x))


@operator("Softsign", (1, 22))
def softsign(_, x):
    """x / (1 + |x|)."""
    return x / (1 + torch.abs(x))


@operator("Shrink", (9,))
def shrink(call, x):
    """Moved towards zero by the bias where outside [-lambd, lambd], 0 inside."""
    bias, bound = call["bias"], call["lambd"]
    wide = x if x.is_floating_point() else x.float()
    # What is not a number is neither above nor below: 0, as onnxruntime has it.
    above = torch.where(wide > bound, wide - bias, torch.zeros_like(wide))
    return torch.where(wide < -bound, wide + bias, above).to(x.dtype)


def _over_axis(call, x, function):
    """Before opset 13 all axes from `axis` on are one."""
    if call.version >= 13:
        return function(x, call["axis"])
    axis = call["axis"] + x.dim() * (call["axis"] < 0)
    flat = x.reshape(math.prod(x.shape[:axis]), -1)
    return function(flat, 1).reshape(x.shape)


@operator("Softmax", (1, 11, 13))
def softmax(call, x):
    """exp, normalised."""
    return _over_axis(call, x, torch.softmax)


@operator("LogSoftmax", (1, 11, 13))
def log_softmax(call, x):
    """Logarithm of softmax."""
    return _over_axis(call, x, torch.log_softmax)


@operator("Hardmax", (1, 11, 13))
def hardmax(call, x):
    """1 at the first maximum, 0 elsewhere."""

    def one_hot(values, axis):
        best = values.argmax(axis, keepdim=True)
        places = torch.arange(values.shape[axis])
        shape = [1] * values.dim()
        shape[axis] = -1
        return (places.reshape(shape) == best).to(values.dtype)

    return _over_axis(call, x, one_hot)


def _check_limits(call, x, *limits):
    """onnxruntime takes a limit that is not a number for none, or for the other one, by place."""
    if any(limit is not None and bool(limit.isnan().any()) for limit in limits):
        raise call.refuse("a limit that is not a number; write it as a number, or leave it out")


@operator("Clip", (1, 6))
def clip_attributes(call, x):
    """Limits as attributes."""
    _check_limits(call, x, torch.tensor(call["min"]), torch.tensor(call["max"]))
    return torch.clamp(x, call["min"], call["max"])


@operator("Clip", (11, 12, 13), check=_check_limits)
@ordered
def clip(_, x, low=None, high=None):
    """Limits as inputs; the upper one wins where they cross.

    One that is left out is the largest finite number, so that infinities end there.
    """
    if x.is_floating_point() and (low is None or high is None):
        ends = torch.finfo(x.dtype)
        x = torch.clamp(x, ends.min if low is None else None, ends.max if high is None else None)
    if low is not None:
        x = torch.maximum(x, low.to(x.dtype).reshape(()))
    return x if high is None else torch.minimum(x, high.to(x.dtype).reshape(()))


@operator("SwiGLU", (28,))
def swiglu(call, a, b):
    """Swish of one value times another of the same shape."""
    if a.shape != b.shape:
        raise ValueError(f"shapes {tuple(a.shape)} and {tuple(b.shape)} differ")
    return a * torch.sigmoid(call["alpha"] * a) * b
