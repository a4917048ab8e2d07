"""Gathering and scattering by indices, and choosing."""

import numpy as np
import torch

from converters.errors import TooLargeError
from converters.graph.onnx.operators import operator
from converters.graph.onnx.types import tensor_from
from converters.graph.onnx.values import axes_of, ints, scalar

# Each is compared by itself, at some microseconds.
_MOST_PAIRS = 2**20


def _positive(indices, size: int):
    """Indices from 0; negative ones count from the end."""
    indices = indices.long()
    return torch.where(indices < 0, indices + size, indices)


@operator("Gather", (1, 11, 13))
def gather(call, x, indices):
    """Slices along an axis."""
    axis = axes_of([call["axis"]], x.dim())[0]
    places = _positive(indices, x.shape[axis])
    picked = x.index_select(axis, places.reshape(-1))
    return picked.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@operator("GatherElements", (11, 13))
def gather_elements(call, x, indices):
    """Single elements along an axis."""
    axis = axes_of([call["axis"]], x.dim())[0]
    return x.gather(axis, _positive(indices, x.shape[axis]))


def _flat_places(sizes, indices):
    """Last axis of coordinates -> place in the flattened leading axes."""
    places = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for k in range(indices.shape[-1]):
        places = places * sizes[k] + _positive(indices[..., k], sizes[k])
    return places


@operator("GatherND", (11, 12, 13))
def gather_nd(call, x, indices):
    """Slices by coordinates, after leading batch axes."""
    batch, depth = call["batch_dims"] or 0, indices.shape[-1]
    outer = int(np.prod(x.shape[:batch], dtype=np.int64))
    inner = x.shape[batch : batch + depth]
    volume = int(np.prod(inner, dtype=np.int64))
    rest = list(x.shape[batch + depth :])
    places = _flat_places(inner, indices).reshape(outer, -1)
    places = places + torch.arange(outer).reshape(-1, 1) * volume
    picked = x.reshape(outer * volume, -1).index_select(0, places.reshape(-1))
    return picked.reshape([*indices.shape[:-1], *rest])


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements", (11, 13, 16, 18))
@operator("Scatter", (9,))
def scatter_elements(call, x, indices, updates):
    """Single elements put, added, multiplied, or compared along an axis."""
    axis = axes_of([call["axis"] or 0], x.dim())[0]
    places = _positive(indices, x.shape[axis])
    reduction = call["reduction"] or "none"
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCE[reduction])


@operator("ScatterND", (11, 13, 16, 18))
def scatter_nd(call, x, indices, updates):
    """Slices put, added, multiplied, or compared at coordinates."""
    depth = indices.shape[-1]
    inner = x.shape[:depth]
    rest = int(np.prod(x.shape[depth:], dtype=np.int64))
    places = _flat_places(inner, indices).reshape(-1, 1).expand(-1, rest)
    flat = x.reshape(int(np.prod(inner, dtype=np.int64)), rest)
    values = updates.reshape(-1, rest)
    reduction = call["reduction"] or "none"
    if reduction == "none":
        return flat.scatter(0, places, values).reshape(x.shape)
    return flat.scatter_reduce(0, places, values, _REDUCE[reduction]).reshape(x.shape)


@operator("TensorScatter", (24,), static=(2,))
def tensor_scatter(call, x, updates, starts=None):
    """A cache written from a place on, per example; circular on request."""
    axis = axes_of([call["axis"]], x.dim())[0]
    count, size = updates.shape[axis], x.shape[axis]
    first = (
        torch.zeros(x.shape[0], dtype=torch.int64) if starts is None else torch.tensor(ints(starts))
    )
    places = first.reshape(-1, 1) + torch.arange(count)
    if call["mode"] == "circular":
        places = places % size
    shape = [1] * x.dim()
    shape[0], shape[axis] = x.shape[0], count
    return x.scatter(axis, places.reshape(shape).expand(updates.shape), updates)


@operator("OneHot", (9, 11, 28), static=(1,))
def one_hot(call, indices, depth, values):
    """The second value where the index says, the first elsewhere."""
    count = int(scalar(depth))
    rank = indices.dim() + 1
    axis = axes_of([call["axis"]], rank)[0]
    wide = indices.to(torch.int64)
    # Out of range, beyond one turn, stays off everywhere.
    places = torch.where(wide < 0, wide + count, wide).unsqueeze(axis)
    shape = [1] * rank
    shape[axis] = count
    hit = torch.arange(count).reshape(shape) == places
    return torch.where(hit, values[1], values[0])


@operator("TopK", (1,))
def top_k_attribute(call, x):
    """k as an attribute."""
    return tuple(torch.topk(x, call["k"], call["axis"]))


@operator("TopK", (10, 11, 24), static=(1,), restrictions="in order, or one element")
def top_k(call, x, k):
    """The largest or smallest elements and their places, the first of equals first."""
    if call["sorted"] == 0 and scalar(k) > 1:
        raise call.refuse("unsorted, where every runtime has an order of its own; set sorted to 1")
    axis = axes_of([call["axis"]], x.dim())[0]
    largest = call["largest"] in (None, 1)
    wide = x.to(torch.int64) ^ -(2**63) if x.dtype == torch.uint64 else x
    # A stable sort keeps the order of equals; torch.topk does not say which of them it takes.
    places = torch.sort(wide, dim=axis, descending=largest, stable=True)[1]
    places = places.narrow(axis, 0, int(scalar(k)))
    return x.gather(axis, places), places


@operator("NonZero", (9, 13), static=(0,))
def non_zero(_, x):
    """Coordinates of what is not zero, one row per axis; of known values only."""
    found = np.stack(np.nonzero(x)) if np.ndim(x) else np.zeros((0, int(np.asarray(x) != 0)))
    return tensor_from(found.astype(np.int64))


@operator("Compress", (9, 11, 28), static=(1,))
def compress(call, x, condition):
    """Slices where a known condition holds."""
    places = torch.tensor(np.nonzero(condition)[0].astype(np.int64))
    if call["axis"] is None:
        return x.reshape(-1).index_select(0, places)
    return x.index_select(axes_of([call["axis"]], x.dim())[0], places)


@operator("Unique", (11, 28), static=(0,))
def unique(call, x):
    """Distinct known values, their first places, the way back, and counts."""
    axis = call["axis"]
    values, first, back, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    back = back.reshape(-1)
    if not call["sorted"]:
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, back, counts = first[order], rank[back], counts[order]
    results = (values, *(part.astype(np.int64) for part in (first, back, counts)))
    made = [tensor_from(part) for part in results[: call.outputs]]
    return tuple(made) if len(made) > 1 else made[0]


@operator("NonMaxSuppression", (10, 11), static=(0, 1, 2, 3, 4))
def non_max_suppression(call, boxes, scores, most=None, overlap=None, lowest=None):
    """Boxes kept per class, of known values only."""
    limit = 0 if most is None else int(scalar(most))
    threshold = 0.0 if overlap is None else float(scalar(overlap))
    least = -np.inf if lowest is None else float(scalar(lowest))
    pairs = scores.size * min(boxes.shape[1], max(limit, 0))
    if pairs > _MOST_PAIRS:
        raise TooLargeError(f"{pairs} pairs of boxes to compare, expected at most {_MOST_PAIRS}")
    corners = _corners(boxes, call["center_point_box"])
    rows = [
        (batch, label, box)
        for batch in range(scores.shape[0])
        for label in range(scores.shape[1])
        for box in _kept(corners[batch], scores[batch, label], limit, threshold, least)
    ]
    return tensor_from(np.array(rows, np.int64).reshape(-1, 3))


def _corners(boxes, centred: int):
    if centred:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _kept(corners, scores, limit: int, threshold: float, least: float) -> list[int]:
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(kept) >= limit or scores[box] <= least:
            break
        if all(_overlap(corners[box], corners[other]) <= threshold for other in kept):
            kept.append(int(box))
    return kept


def _overlap(a, b) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    if (sides <= 0).any():
        return 0.0
    shared = float(sides.prod())
    return shared / float((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - shared)
