"""Normalisation layers and dropout."""

import torch
import torch.nn.functional as F

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import axes_of, scalar


def _channels(values, x):
    return values.reshape([1, -1] + [1] * (x.dim() - 2))


@operator("BatchNormalization", (6, 7, 9, 14, 15), restrictions="inference only")
def batch_normalization(call, x, scale, bias, mean, variance):
    """With the running statistics."""
    trains = call["training_mode"] or (call.version < 7 and not call["is_test"])
    if trains or call["spatial"] == 0:
        raise call.refuse(
            "training mode, in which onnxruntime's optimiser changes the answer, or statistics per "
            "place; export the network in evaluation mode"
        )
    if call.outputs > 1:
        raise call.refuse("several outputs, which only training has; export it in evaluation mode")
    if _one_type(x, scale, mean):
        return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, call["epsilon"])
    return _normalised(x, mean, variance, scale, bias, call)


def _one_type(*tensors) -> bool:
    return len({tensor.dtype for tensor in tensors}) == 1 and tensors[0].dim() >= 2


def _normalised(x, mean, variance, scale, bias, call):
    if x.dim() < 2:
        raise call.refuse(f"an input of {x.dim()} dimensions")
    factor = scale / torch.sqrt(variance + call["epsilon"])
    y = x * _channels(factor, x) + _channels(bias - mean * factor, x)
    return y.to(x.dtype)


@operator("InstanceNormalization", (6, 22))
def instance_normalization(call, x, scale, bias):
    """Each channel of each example by its own statistics."""
    axes = list(range(2, x.dim()))
    mean = x.mean(axes, keepdim=True)
    variance = x.var(axes, correction=0, keepdim=True)
    y = (x - mean) / torch.sqrt(variance + call["epsilon"])
    return y * _channels(scale, x) + _channels(bias, x)


@operator("LayerNormalization", (*range(7, 17), 17))
def layer_normalization(call, x, scale, bias=None):
    """The axes from `axis` on by their own statistics; onnxruntime has it before ONNX does, too."""
    axis = axes_of([-1 if call["axis"] is None else call["axis"]], x.dim())[0]
    epsilon = 1e-5 if call["epsilon"] is None else call["epsilon"]
    shape = list(x.shape[axis:])
    if (
        call.outputs == 1
        and list(scale.shape) == shape
        and (bias is None or list(bias.shape) == shape)
    ):
        return F.layer_norm(x, shape, scale, bias, epsilon)
    axes = list(range(axis, x.dim()))
    wide = x if x.dtype == torch.float64 else x.float()
    mean = wide.mean(axes, keepdim=True)
    inverse = torch.rsqrt(wide.var(axes, correction=0, keepdim=True) + epsilon)
    y = ((wide - mean) * inverse).to(x.dtype) * scale
    y = y if bias is None else y + bias
    return (y, mean, inverse)[: call.outputs] if call.outputs > 1 else y


@operator("RMSNormalization", (23,))
def rms_normalization(call, x, scale):
    """The axes from `axis` on by their root mean square."""
    axis = axes_of([call["axis"]], x.dim())[0]
    axes = list(range(axis, x.dim()))
    wide = x if x.dtype == torch.float64 else x.float()
    inverse = torch.rsqrt((wide * wide).mean(axes, keepdim=True) + call["epsilon"])
    return (wide * inverse).to(x.dtype) * scale


@operator("GroupNormalization", (18, 21))
def group_normalization(call, x, scale, bias):
    """Groups of channels by their own statistics; scales per channel, before opset 21 per group."""
    groups = call["num_groups"]
    if call.version >= 21:
        return F.group_norm(x, groups, scale, bias, call["epsilon"])
    y = F.group_norm(x, groups, None, None, call["epsilon"])
    each = x.shape[1] // groups
    return y * _channels(_repeated(scale, each), x) + _channels(_repeated(bias, each), x)


def _repeated(values, times: int):
    return values.reshape(-1, 1).expand(-1, times).reshape(-1)


@operator("LRN", (1, 13))
def local_response_normalization(call, x):
    """Divided by a power of the squares in neighbouring channels."""
    size = call["size"]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = (x * x).unsqueeze(1)
    padding = [0] * 2 * (x.dim() - 2) + [before, after]
    padded = F.pad(squares.squeeze(1), padding)
    sums = sum(padded.narrow(1, k, x.shape[1]) for k in range(size))
    return x / (call["bias"] + call["alpha"] / size * sums) ** call["beta"]


@operator("LpNormalization", (1, 22))
def lp_normalization(call, x):
    """Divided by the norm along an axis; 0 where the norm is 0."""
    axis = call["axis"]
    if call["p"] == 1:
        norm = torch.abs(x).sum(axis, keepdim=True)
    else:
        norm = torch.sqrt((x * x).sum(axis, keepdim=True))
    safe = torch.where(norm == 0, torch.ones_like(norm), norm)
    return torch.where(norm == 0, torch.zeros_like(x), x / safe)


@operator("MeanVarianceNormalization", (9, 13))
def mean_variance_normalization(call, x):
    """Mean 0 and variance 1 over the axes."""
    axes = list(call["axes"] or [0, 2, 3])
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    # Squares of x itself would take from each other all that is left where the mean is large.
    spread = torch.sqrt((centred * centred).mean(axes, keepdim=True))
    return centred / (spread + 1e-9)


@operator("Dropout", (1, 6, 7, 10, 12, 13, 22), static=(1, 2), restrictions="inference only")
def dropout(call, x, ratio=None, training=None):
    """Nothing outside training; random masks are refused."""
    if training is not None and scalar(training) and (ratio is None or bool((ratio != 0).any())):
        raise call.refuse("training mode draws random numbers")
    if call.outputs < 2:
        return x
    return x, torch.ones_like(x, dtype=torch.bool if call.version >= 10 else x.dtype)
