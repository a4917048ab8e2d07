"""Shapes, moves and constants: what changes no value."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto

from converters.graph.onnx.operators import operator
from converters.graph.onnx.types import array_of, tensor_from, torch_type
from converters.graph.onnx.values import axes_of, ints, scalar, widened

_NEWER = (19, 21, 23, 24, 25)


def _constant(builder, call, _, __):
    return [builder.fresh(call.operator, constant_value(call), 0)]


def constant_value(call) -> torch.Tensor:
    """The tensor of a Constant node's one attribute."""
    for name, kind in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if call[name] is not None:
            return tensor_from(np.array(call[name], kind))
    if not isinstance(call["value"], TensorProto):
        raise call.refuse("a constant that is text, sparse or absent")
    return tensor_from(array_of(call["value"]))


def _shape(builder, call, inputs, _):
    sizes = list(inputs[0].data.shape)
    rank = len(sizes)
    start, end = call["start"] or 0, call["end"]
    start = min(max(start + rank * (start < 0), 0), rank)
    end = rank if end is None else min(max(end + rank * (end < 0), 0), rank)
    return [builder.fresh("shape", torch.tensor(sizes[start:end], dtype=torch.int64), 0)]


def _size(builder, _, inputs, __):
    return [builder.fresh("size", torch.tensor(inputs[0].data.numel()), 0)]


# These make constants whatever their inputs hold.
SPECIAL = {("", "Constant"): _constant, ("", "Shape"): _shape, ("", "Size"): _size}
VERSIONS = {
    "Constant": (1, 9, 11, 12, 13, *_NEWER),
    "Shape": (1, 13, 15, *_NEWER),
    "Size": (1, 13, *_NEWER),
}


@operator("Identity", (1, 13, 14, 16, *_NEWER))
def identity(_, x):
    """The value itself."""
    return x


@operator("Reshape", (5, 13, 14, *_NEWER), static=(1,))
def reshape(call, x, shape):
    """Another shape; 0 copies a size unless allowzero, -1 is worked out."""
    sizes = ints(shape)
    if not call["allowzero"]:
        sizes = [x.shape[k] if n == 0 else n for k, n in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Reshape", (1,))
def reshape_attribute(call, x):
    """The shape as an attribute."""
    return x.reshape([x.shape[k] if n == 0 else n for k, n in enumerate(call["shape"])])


@operator("Flatten", (1, 9, 11, 13, 21, 23, 24, 25))
def flatten(call, x):
    """Two axes: those before `axis` and the others."""
    axis = call["axis"] + x.dim() * (call["axis"] < 0)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Squeeze", (1, 11, 13, 21, 23, 24, 25), static=(1,))
def squeeze(call, x, axes=None):
    """Without axes of size 1."""
    given = call["axes"] if axes is None else ints(axes)
    if given is None:
        return x.reshape([n for n in x.shape if n != 1])
    found = axes_of(given, x.dim())
    if any(x.shape[axis] != 1 for axis in found):
        raise ValueError(f"axes {found[:8]} of shape {list(x.shape)[:8]} are not all of size 1")
    return x.reshape([n for axis, n in enumerate(x.shape) if axis not in found])


@operator("Unsqueeze", (1, 11, 13, 21, 23, 24, 25), static=(1,))
def unsqueeze(call, x, axes=None):
    """With new axes of size 1 at these places of the result."""
    given = call["axes"] if axes is None else ints(axes)
    for axis in sorted(axes_of(given, x.dim() + len(given))):
        x = x.unsqueeze(axis)
    return x


@operator("Transpose", (1, 13, 21, 23, 24, 25))
def transpose(call, x):
    """Axes in another order, reversed by default."""
    return x.permute(call["perm"] or list(range(x.dim()))[::-1])


@operator("Expand", (8, 13), static=(1,))
def expand(_, x, shape):
    """Broadcast to a shape, which is broadcast to the input's in turn."""
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(ints(shape))))


@operator("Tile", (6, 13), static=(1,))
def tile(_, x, repeats):
    """Repeated along each axis."""
    return x.repeat(ints(repeats))


@operator("Concat", (1, 4, 11, 13))
def concat(call, *inputs):
    """Joined along an axis."""
    axis = 1 if call["axis"] is None else call["axis"]
    return torch.cat(inputs, axes_of([axis], inputs[0].dim())[0])


@operator("Split", (2, 11, 13, 18), static=(1,))
def split(call, x, sizes=None):
    """Cut along an axis, into equal parts (the last may be smaller) or parts of given sizes."""
    axis = axes_of([call["axis"]], x.dim())[0]
    given = call["split"] if sizes is None else ints(sizes)
    if given is None:
        count = call["num_outputs"] or call.outputs
        each = -(-x.shape[axis] // count)
        left = [max(0, min(each, x.shape[axis] - k * each)) for k in range(count)]
        given = left
    if sum(given) != x.shape[axis] or any(n < 0 for n in given):
        raise ValueError(f"parts {given[:8]} of an axis of {x.shape[axis]}")
    return tuple(torch.split(x, list(given), axis))


@operator("Slice", (10, 11, 13), static=(1, 2, 3, 4))
def cut(_, x, starts, ends, axes=None, steps=None):
    """Slices along axes; negative steps run backwards."""
    first, last = ints(starts), ints(ends)
    along = axes_of(range(len(first)) if axes is None else ints(axes), x.dim())
    by = [1] * len(first) if steps is None else ints(steps)
    for axis, start, end, step in zip(along, first, last, by, strict=True):
        x = _cut_axis(x, axis, start, end, step)
    return x


def _cut_axis(x, axis: int, start: int, end: int, step: int):
    size = x.shape[axis]
    start, end, step = slice(start, end, step).indices(size)
    if step > 0:
        chosen = (slice(None),) * axis + (slice(start, max(start, end), step),)
        return x[chosen]
    places = range(start, end, step)
    if not places:
        return x.narrow(axis, 0, 0)
    # torch has no negative steps: cut forwards, then flip.
    chosen = (slice(None),) * axis + (slice(places[-1], places[0] + 1, -step),)
    return x[chosen].flip(axis)


@operator("Slice", (1,))
def cut_attributes(call, x):
    """Bounds as attributes."""
    axes = call["axes"] or list(range(len(call["starts"])))
    for axis, start, end in zip(axes, call["starts"], call["ends"], strict=True):
        x = _cut_axis(x, axes_of([axis], x.dim())[0], start, end, 1)
    return x


@operator("ConstantOfShape", (9, 20, 21, 23, 24, 25), static=(0,))
def constant_of_shape(call, shape):
    """One value everywhere, 0.0 by default."""
    value = call["value"]
    if isinstance(value, TensorProto) and value.data_type:
        one = tensor_from(array_of(value)).reshape(())
    else:
        one = torch.zeros(())
    return torch.full(ints(shape), one.item(), dtype=one.dtype)


@operator("Range", (11, 27), static=(0, 1, 2))
def steps(_, start, limit, delta):
    """start, start + delta, ... before limit."""
    first, last, by = scalar(start), scalar(limit), scalar(delta)
    count = max(math.ceil((last - first) / by), 0)
    dtype = tensor_from(np.asarray(start)).dtype
    places = torch.arange(count, dtype=torch.float64 if dtype.is_floating_point else torch.int64)
    return (places * by + first).to(dtype)


@operator("EyeLike", (9, 22))
def eye_like(call, x):
    """Ones on a diagonal of a matrix of the input's shape."""
    rows, columns = x.shape
    dtype = x.dtype if call["dtype"] is None else torch_type(call["dtype"])
    gap = torch.arange(columns).reshape(1, -1) - torch.arange(rows).reshape(-1, 1)
    return (gap == call["k"]).to(dtype)


@operator("Trilu", (14,), static=(1,))
@widened
def triangle(call, x, k=None):
    """The upper or lower triangle, 0 elsewhere."""
    offset = 0 if k is None else int(scalar(k))
    rows, columns = x.shape[-2:]
    gap = torch.arange(columns).reshape(1, -1) - torch.arange(rows).reshape(-1, 1)
    kept = gap >= offset if call["upper"] else gap <= offset
    return torch.where(kept, x, torch.zeros_like(x))


def _by_mode(call, x, pads: list[int], mode: str, value):
    """Pads per axis, all befores first; negative ones cut."""
    rank = x.dim()
    for axis in range(rank):
        before, after = pads[axis], pads[axis + rank]
        x = _cut_axis(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0), 1)
    grow = [max(pad, 0) for pad in pads]
    if mode == "constant":
        pairs = [pad for k in reversed(range(rank)) for pad in (grow[k], grow[k + rank])]
        return F.pad(x, pairs, value=value) if any(grow) else x
    for axis in range(rank):
        if grow[axis] or grow[axis + rank]:
            x = x.index_select(
                axis, _places(call, mode, x.shape[axis], grow[axis], grow[axis + rank])
            )
    return x


def _places(call, mode: str, size: int, before: int, after: int) -> torch.Tensor:
    """Which element of an axis stands at each place of the padded one."""
    places = torch.arange(-before, size + after)
    if size == 0:
        raise call.refuse(f"mode {mode} on an empty axis")
    if mode == "edge":
        return places.clamp(0, size - 1)
    if mode == "wrap":
        return places % size
    if mode != "reflect":
        raise call.refuse(f"mode {mode}")
    if size == 1:
        return torch.zeros_like(places)
    period = 2 * (size - 1)
    folded = places % period
    return torch.where(folded >= size, period - folded, folded)


@operator("Pad", (11, 13, 18, *_NEWER), static=(1, 2, 3))
def pad(call, x, pads, value=None, axes=None):
    """Padding by a constant, the edge, a reflection or the other end."""
    rank, given = x.dim(), ints(pads)
    along = list(range(rank)) if axes is None else axes_of(ints(axes), rank)
    full = [0] * 2 * rank
    for k, axis in enumerate(along):
        full[axis], full[axis + rank] = given[k], given[k + len(along)]
    is_absent = value is None or np.asarray(value).size == 0
    return _by_mode(call, x, full, call["mode"], 0 if is_absent else scalar(value))


@operator("Pad", (1, 2))
def pad_attributes(call, x):
    """Padding as attributes."""
    pads = call["pads"] or call["paddings"]
    return _by_mode(call, x, list(pads), call["mode"], call["value"])


@operator("CenterCropPad", (18,), static=(1,))
def center_crop_pad(call, x, shape):
    """Cut or padded with zeros around the middle."""
    wanted = ints(shape)
    along = axes_of(call["axes"] or range(x.dim()), x.dim())
    pads = [0] * 2 * x.dim()
    for axis, size in zip(along, wanted, strict=True):
        gap = size - x.shape[axis]
        # Of an odd difference the larger half goes to the end.
        first = gap // 2 if gap >= 0 else -((-gap) // 2)
        pads[axis], pads[axis + x.dim()] = first, gap - first
    return _by_mode(call, x, pads, "constant", 0)


@operator("DepthToSpace", (1, 11, 13, 28))
def depth_to_space(call, x):
    """Channels become places."""
    n, c, h, w = x.shape
    b = call["blocksize"]
    if (call["mode"] or "DCR") == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // (b * b), h * b, w * b)


@operator("SpaceToDepth", (1, 13, 28))
def space_to_depth(call, x):
    """Places become channels."""
    n, c, h, w = x.shape
    b = call["blocksize"]
    if (call["mode"] or "DCR") == "DCR":
        y = x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4)
    else:
        y = x.reshape(n, c, h // b, b, w // b, b).permute(0, 1, 3, 5, 2, 4)
    return y.reshape(n, c * b * b, h // b, w // b)


@operator("ReverseSequence", (10, 28), static=(1,))
def reverse_sequence(call, x, lengths):
    """Of each sequence of the batch the first elements reversed."""
    time, batch = call["time_axis"], call["batch_axis"]
    steps_ = x.shape[time]
    table = torch.arange(steps_).repeat(x.shape[batch], 1)
    for row, length in enumerate(ints(lengths)):
        table[row, :length] = table[row, :length].flip(0)
    places = table if batch < time else table.t()
    shape = [n if k in (time, batch) else 1 for k, n in enumerate(x.shape)]
    return x.gather(time, places.reshape(shape).expand(x.shape))
