"""What onnxruntime's optimizer makes of several operators of ONNX, as its saved files hold them.

Source: com.microsoft.* in onnxruntime's docs/ContribOperators.md; no schema of the package onnx
tells their defaults.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from converters.graph.onnx.extensions.convolution import convolve
from converters.graph.onnx.extensions.quantisation import MICROSOFT
from converters.graph.onnx.operators import Call, operator
from converters.graph.onnx.values import widened


def _said(call: Call, name: str, default: Any) -> Any:
    return default if call[name] is None else call[name]


@operator("Gelu", (1,), domain=MICROSOFT)
def gelu(_, x):
    """x times the normal distribution function."""
    return F.gelu(x)


@operator("BiasGelu", (1,), domain=MICROSOFT)
def bias_gelu(_, x, bias):
    """The same of a sum."""
    return F.gelu(x + bias)


@operator("FastGelu", (1,), domain=MICROSOFT)
def fast_gelu(_, x, bias=None):
    """Its tanh approximation, of x or of a sum."""
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@operator("QuickGelu", (1,), domain=MICROSOFT)
def quick_gelu(call, x):
    """x sigmoid(alpha x)."""
    return x * torch.sigmoid(_said(call, "alpha", 1.702) * x)


@operator("FusedMatMul", (1,), domain=MICROSOFT)
@widened
def fused_matmul(call, a, b):
    """alpha times the product of the last two axes, once axes are moved as the node says."""
    a, b = (_moved(call, side, x) if x.dim() > 1 else x for side, x in (("A", a), ("B", b)))
    return _said(call, "alpha", 1.0) * torch.matmul(a, b)


def _moved(call: Call, side: str, x):
    """First the first axis behind those of the batch, then the last two exchanged, on request."""
    x = x.movedim(0, -2) if call[f"transBatch{side}"] else x
    return x.transpose(-1, -2) if call[f"trans{side}"] else x


@operator("SkipLayerNormalization", (1,), domain=MICROSOFT, restrictions="the first output alone")
def skip_layer_normalization(call, x, skip, scale, shift=None, bias=None):
    """A sum of two, and a bias, normed over the last axis."""
    if call.outputs > 1:
        raise call.refuse("outputs beside the first")
    if skip.shape[-2:] != x.shape[-2:]:
        raise call.refuse(f"something of shape {[*skip.shape]} added to {[*x.shape]}")
    total = x + skip if bias is None else x + skip + bias
    return F.layer_norm(total, total.shape[-1:], scale, shift, _said(call, "epsilon", 1e-12))


_ACTIVATIONS = {
    None: lambda y: y,
    "Relu": F.relu,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "LeakyRelu": lambda y, alpha: F.leaky_relu(y, alpha),
    "Clip": lambda y, least, most: torch.clamp(y, least, most),
    "HardSigmoid": lambda y, alpha, beta: torch.clamp(alpha * y + beta, 0, 1),
}


@operator("FusedConv", (1,), domain=MICROSOFT, restrictions="as Conv; six activations")
def fused_conv(call, x, weight, bias=None, added=None):
    """A convolution, something added, and an activation."""
    grouped = replace(call, attributes={"group": 1} | dict(call.attributes))
    y = convolve(grouped, x, weight, bias)
    name, given = call["activation"], call["activation_params"] or ()
    if name not in _ACTIVATIONS:
        raise call.refuse(f"activation {name!r}")
    try:
        return _ACTIVATIONS[name](y if added is None else y + added, *given)
    except TypeError as error:
        raise call.refuse(f"activation {name} with parameters {[*given]}") from error
