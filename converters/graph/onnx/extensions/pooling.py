"""Pooling over windows and over whole pictures."""

import functools
import itertools

import torch
import torch.nn.functional as F

from converters.graph.onnx.extensions.convolution import WINDOWS, pad_spatial, window
from converters.graph.onnx.operators import operator

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _sizes(call, size, kernel, strides, dilations, before, after) -> list[int]:
    """Output sizes; with ceil_mode a window may hang over, but must start inside."""
    sizes = []
    for n, k, s, d, b, a in zip(size, kernel, strides, dilations, before, after, strict=True):
        room = n + b + a - (k - 1) * d - 1
        count = -(-room // s) + 1 if call["ceil_mode"] else room // s + 1
        if call["ceil_mode"] and (count - 1) * s >= n + b:
            count -= 1
        sizes.append(count)
    return sizes


def _geometry(call, x):
    """Strides, dilations, padding before, and padding after as the last windows need it."""
    kernel = list(call["kernel_shape"])
    if len(kernel) != x.dim() - 2 or len(kernel) not in _MAX:
        raise call.refuse(f"a kernel of {len(kernel)} axes on {x.dim()} dimensions")
    strides, dilations, before, after = window(call, x.shape[2:], kernel)
    sizes = _sizes(call, x.shape[2:], kernel, strides, dilations, before, after)
    needed = [
        (m - 1) * s + (k - 1) * d + 1 - n - b
        for m, s, k, d, n, b in zip(
            sizes, strides, kernel, dilations, x.shape[2:], before, strict=True
        )
    ]
    return kernel, strides, dilations, before, after, needed


def _as_torch(before, needed, kernel, strides) -> bool:
    """Whether padding of `before` on both sides gives torch the same windows."""
    room = zip(before, needed, strides, strict=True)
    half = all(2 * b <= k for b, k in zip(before, kernel, strict=True))
    return half and all(0 <= b - n < s for b, n, s in room)


@operator("MaxPool", (1, 8, 10, 11, 12, 22), restrictions=WINDOWS)
def max_pool(call, x):
    """Maximum of each window, and on request its place in the whole input."""
    kernel, strides, dilations, before, _, needed = _geometry(call, x)
    if x.is_floating_point() and call.outputs < 2 and _as_torch(before, needed, kernel, strides):
        return _MAX[len(kernel)](x, kernel, strides, before, dilations)
    lowest = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    if x.is_floating_point():
        padded = pad_spatial(x, before, needed, lowest)
    else:  # torch pools floating values only; 64-bit floats hold what 8 bits can say
        padded = pad_spatial(x.double(), before, needed, float(lowest))
    pool = _MAX[len(kernel)]
    if call.outputs < 2:
        return pool(padded, kernel, strides, 0, dilations).to(x.dtype)
    y, places = pool(padded, kernel, strides, 0, dilations, return_indices=True)
    return y.to(x.dtype), _whole_places(call, places, padded.shape, x.shape, before)


def _whole_places(call, places, padded, shape, before):
    """From places in one padded channel to places in the whole input."""
    coordinates, rest = [], places
    for size in reversed(padded[2:]):
        coordinates.append(rest % size)
        rest = rest // size
    coordinates = [c - b for c, b in zip(coordinates[::-1], before, strict=True)]
    sizes = list(shape[2:])
    if call["storage_order"]:
        coordinates, sizes = coordinates[::-1], sizes[::-1]
    flat = coordinates[0]
    for coordinate, size in zip(coordinates[1:], sizes[1:], strict=True):
        flat = flat * size + coordinate
    volume = 1
    for size in sizes:
        volume *= size
    channels = torch.arange(shape[0] * shape[1]).reshape([*shape[:2]] + [1] * len(sizes))
    return flat + channels * volume


@operator("AveragePool", (1, 7, 10, 11, 19, 22), restrictions=WINDOWS)
def average_pool(call, x):
    """Mean of each window, padding counted or not."""
    kernel, strides, dilations, before, after, needed = _geometry(call, x)
    declared = all(n <= a for n, a in zip(needed, after, strict=True))
    if call["count_include_pad"] and declared and _as_torch(before, needed, kernel, strides):
        if all(d == 1 for d in dilations):
            return _AVERAGE[len(kernel)](x, kernel, strides, before)
    sums = _window_mean(pad_spatial(x, before, needed), kernel, strides, dilations)
    hanging = [max(n - a, 0) for n, a in zip(needed, after, strict=True)]
    counted = bool(call["count_include_pad"])
    if not any(hanging) and (counted or not any(before) and max(needed) <= 0):
        return sums
    ones = torch.ones_like(x[:1, :1])
    if counted:
        # Declared padding counts, what a hanging window adds does not.
        declared = [min(n, a) for n, a in zip(needed, after, strict=True)]
        inside = pad_spatial(pad_spatial(ones, before, declared, 1.0), [0] * len(before), hanging)
    else:
        inside = pad_spatial(ones, before, needed)
    return sums / _window_mean(inside, kernel, strides, dilations)


def _window_mean(x, kernel, strides, dilations):
    if all(d == 1 for d in dilations):
        return _AVERAGE[len(kernel)](x, kernel, strides)
    return _taps_sum(x, kernel, strides, dilations) / _volume(kernel)


def _volume(kernel) -> int:
    volume = 1
    for size in kernel:
        volume *= size
    return volume


def _taps_sum(x, kernel, strides, dilations):
    """Sum over each window, tap by tap."""
    spans = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)
    ]
    parts = []
    for tap in itertools.product(*map(range, kernel)):
        part = x
        for axis, (t, d, s, m) in enumerate(zip(tap, dilations, strides, spans, strict=True)):
            part = part.narrow(axis + 2, t * d, (m - 1) * s + 1)
            part = part[(slice(None),) * (axis + 2) + (slice(None, None, s),)]
        parts.append(part)
    return functools.reduce(torch.add, parts)


@operator("LpPool", (2, 11, 18, 22), restrictions=WINDOWS)
def lp_pool(call, x):
    """p-norm of each window."""
    kernel, strides, dilations, before, _, needed = _geometry(call, x)
    p = call["p"]
    powers = pad_spatial(torch.abs(x) ** p, before, needed)
    return _taps_sum(powers, kernel, strides, dilations) ** (1 / p)


def _spatial(x) -> list[int]:
    return list(range(2, x.dim()))


@operator("GlobalAveragePool", (1, 22))
def global_average_pool(_, x):
    """Mean of each channel."""
    return x.mean(_spatial(x), keepdim=True)


@operator("GlobalMaxPool", (1, 22))
def global_max_pool(_, x):
    """Maximum of each channel."""
    return x.amax(_spatial(x), keepdim=True)


@operator("GlobalLpPool", (2, 22))
def global_lp_pool(call, x):
    """p-norm of each channel."""
    return (torch.abs(x) ** call["p"]).sum(_spatial(x), keepdim=True) ** (1 / call["p"])


@operator("MaxUnpool", (9, 11, 22), static=(2,), restrictions="no padding")
def max_unpool(call, x, places, shape=None):
    """Puts maxima back where they were; everything else is 0."""
    kernel = list(call["kernel_shape"])
    strides = list(call["strides"] or [1] * len(kernel))
    if any(call["pads"] or []):
        raise call.refuse("padding")
    own = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], strides, kernel, strict=True)]
    size = [*x.shape[:2], *own]
    flat = torch.zeros(_volume(size), dtype=x.dtype)
    flat = flat.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(size)
    if shape is None:
        return flat
    wanted = [int(n) for n in shape]
    # The places count in the smaller picture; the larger one is filled up with zeros.
    return pad_spatial(flat, [0] * len(own), [w - o for w, o in zip(wanted[2:], own, strict=True)])
