"""Resizing, warping and sampling pictures.

Interpolation is separable: for each axis the weights of all outputs are one small matrix, worked
out once (https://onnx.ai/onnx/operators/onnx__Resize.html), so resizing is a product.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from converters.graph.guard import bounded
from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import axes_of, floats, ints

# A place this near the middle of two inputs lies in the middle, as onnxruntime 1.32 has it.
_TIE = 1e-6
# Beyond this lies no place of a picture.
_FAR = 2.0**31


def _length(size: int, factor: float) -> int:
    """How many values an axis is resized to, in float32 as onnxruntime has it."""
    length = size * factor
    return math.floor(np.float32(length) if length < _FAR else length)


def _source(mode: str, out: int, size: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Where each output lies on the input axis.

    In float32 and in the order in which onnxruntime computes it: a place that falls on an input in
    one precision lies beside it in another, and "nearest" then takes another input.
    """
    places, factor = np.arange(out, dtype=np.float32), np.float32(scale)
    if scale == 1:
        return places
    if mode == "align_corners":
        return places * np.float32(size - 1) / np.float32(max(out - 1, 1))
    if mode == "asymmetric":
        return places / factor
    if mode == "tf_crop_and_resize":
        return _cropped(places, size, np.float32(roi[0]), np.float32(roi[1]))
    if mode == "pytorch_half_pixel" and out == 1:
        return places
    if mode == "half_pixel_symmetric":
        shift = _centring(out, size, factor)
        return (shift + (np.arange(out) + 0.5) / float(factor) - 0.5).astype(np.float32)
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise ValueError(f"coordinate_transformation_mode {mode}")
    return (places + np.float32(0.5)) / factor - np.float32(0.5)


def _cropped(places: np.ndarray, size: int, first: np.float32, last: np.float32) -> np.ndarray:
    """Places on the part of an axis from `first` to `last`, both from 0 to 1."""
    span, count = np.float32(size - 1), len(places)
    if count == 1:
        return places + np.float32(0.5 * float(first + last) * float(span))
    return first * span + places * (last - first) * span / np.float32(count - 1)


def _centring(out: int, size: int, factor: np.float32) -> float:
    """What keeps the centre in place where `size * factor` is no whole number."""
    adjustment = np.float32(out) / (factor * np.float32(size))
    return float(np.float32(size / 2) * (np.float32(1) - adjustment))


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(distance), 0, None)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = a * (((d - 5) * d + 8) * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _weights(call, source: np.ndarray, size: int, scale: float) -> np.ndarray:
    """Matrix `[out, size]` of linear or cubic interpolation, edges repeated."""
    cubic = call["mode"] == "cubic"
    reach = 2 if cubic else 1
    stretch = min(scale, 1.0) if call["antialias"] else 1.0
    first = math.floor(-reach / stretch) + 1
    bounded(len(source) * (2 - 2 * first))
    offsets = np.arange(first, 2 - first)[None]
    base = np.ceil(source)[:, None] - 1
    distance = (base + offsets - source[:, None]) * stretch
    taps = _cubic(distance, call["cubic_coeff_a"]) if cubic else _linear(distance)
    places = (base + offsets).astype(np.int64)
    if call["exclude_outside"]:
        taps = np.where((places < 0) | (places >= size), 0.0, taps)
    if call["exclude_outside"] or call["antialias"]:
        taps = taps / taps.sum(1, keepdims=True)
    matrix = np.zeros((len(source), size))
    rows = np.broadcast_to(np.arange(len(source))[:, None], places.shape)
    np.add.at(matrix, (rows, np.clip(places, 0, size - 1)), taps)
    return matrix


def _nearest(call, source: np.ndarray, size: int, scale: float) -> np.ndarray:
    """Which input each output takes; forms without the attribute round away from the input."""
    places = source.astype(np.float64)
    rounded = {
        "round_prefer_floor": lambda: np.ceil(places - 0.5 - _TIE),
        "round_prefer_ceil": lambda: np.floor(places + 0.5 + _TIE),
        "floor": lambda: np.floor(places),
        "ceil": lambda: np.ceil(places),
    }
    mode = call["nearest_mode"] or ("ceil" if scale < 1 else "floor")
    return np.clip(rounded[mode](), 0, size - 1).astype(np.int64)


def _resize_axis(call, x, axis: int, out: int, scale: float, roi: tuple[float, float]):
    """One axis resized, and which outputs lie outside the input (None for none)."""
    size = x.shape[axis]
    if out < 1 or size < 1 or not 0 < scale < math.inf:
        raise ValueError(f"{size} values resized to {out} by {scale}, expected at least 1 of each")
    bounded(out * size)
    mode = call["coordinate_transformation_mode"] or "asymmetric"
    with np.errstate(over="ignore", invalid="ignore"):
        source = _source(mode, out, size, scale, roi)
    if not (np.abs(source) < _FAR).all():
        raise ValueError(f"a region from {roi[0]} to {roi[1]}, expected about 0 to 1")
    outside = (source < 0) | (source > size - 1) if mode == "tf_crop_and_resize" else None
    if call["mode"] == "nearest":
        return x.index_select(axis, torch.from_numpy(_nearest(call, source, size, scale))), outside
    matrix = torch.from_numpy(_weights(call, source.astype(np.float64), size, scale))
    wide = x if x.is_floating_point() else x.float()
    y = torch.matmul(wide.movedim(axis, -1), matrix.to(wide.dtype).t()).movedim(-1, axis)
    return y, outside


def _resize(call, x, axes: list[int], sizes: list[int], scales: list[float], roi: list[float]):
    hidden, y = None, x
    # onnxruntime copies what keeps its shape, whatever the factors and the region are.
    if all(size == x.shape[axis] for size, axis in zip(sizes, axes, strict=True)):
        return x
    for k, axis in enumerate(axes):
        part = (roi[k], roi[k + len(axes)]) if roi else (0.0, 1.0)
        if sizes[k] == x.shape[axis] and scales[k] == 1:
            continue
        y, outside = _resize_axis(call, y, axis, sizes[k], scales[k], part)
        if outside is not None:
            shape = [1] * x.dim()
            shape[axis] = sizes[k]
            mask = torch.from_numpy(outside).reshape(shape)
            hidden = mask if hidden is None else hidden | mask
    if hidden is not None:
        y = torch.where(hidden, torch.full((), call["extrapolation_value"], dtype=y.dtype), y)
    if x.is_floating_point():
        return y
    return y if y.dtype == x.dtype else torch.round(y).to(x.dtype)


@operator("Resize", (11, 13, 18, 19), static=(1, 2, 3))
def resize(call, x, roi=None, scales=None, sizes=None):
    """Nearest, linear or cubic, by factors or to sizes, with or without antialiasing."""
    axes = axes_of(call["axes"] or range(x.dim()), x.dim())
    regions = [] if roi is None else floats(roi)
    if scales is not None and np.size(scales):
        factors = floats(scales)
        wanted = [_length(x.shape[axis], f) for axis, f in zip(axes, factors, strict=True)]
        return _resize(call, x, axes, wanted, factors, regions)
    wanted = ints(sizes)
    factors = [n / x.shape[axis] for axis, n in zip(axes, wanted, strict=True)]
    policy = call["keep_aspect_ratio_policy"] or "stretch"
    if policy != "stretch":
        factor = min(factors) if policy == "not_larger" else max(factors)
        factors = [factor] * len(axes)
        wanted = [math.floor(factor * x.shape[axis] + 0.5) for axis in axes]
    return _resize(call, x, axes, wanted, factors, regions)


@operator("Resize", (10,), static=(1,))
@operator("Upsample", (9,), static=(1,))
def resize_by_factors(call, x, scales):
    """The older form: factors only, coordinates divided by them."""
    factors = floats(scales)
    wanted = [_length(n, f) for n, f in zip(x.shape, factors, strict=True)]
    return _resize(call, x, list(range(x.dim())), wanted, factors, [])


@operator("Upsample", (7,))
def upsample_attribute(call, x):
    """Factors as an attribute."""
    return resize_by_factors(call, x, np.array(call["scales"]))


_SAMPLING = {"bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest"}
_SAMPLING |= {"bicubic": "bicubic", "cubic": "bicubic"}


@operator("GridSample", (16, 20, 22), restrictions="cubic only for pictures")
def grid_sample(call, x, grid):
    """Values at places given from -1 to 1."""
    mode = _SAMPLING[call["mode"]]
    if mode == "bicubic" and x.dim() != 4:
        raise call.refuse("cubic sampling of volumes")
    return F.grid_sample(x, grid, mode, call["padding_mode"], bool(call["align_corners"]))


@operator("AffineGrid", (20,), static=(1,))
def affine_grid(call, theta, size):
    """Places that an affine map gives."""
    return F.affine_grid(theta, ints(size), align_corners=bool(call["align_corners"]))


_REGIONS = "mean of samples, not maximum; for the torch backend, no lowering to JAX"


@operator("RoiAlign", (10, 16, 22), restrictions=_REGIONS)
def roi_align(call, x, regions, batches):
    """Regions averaged over a grid, by torchvision."""
    if call["mode"] != "avg":
        raise call.refuse("mode max")
    from torchvision.ops import roi_align as align

    half = (call["coordinate_transformation_mode"] or "output_half_pixel") == "half_pixel"
    boxes = torch.cat([batches.to(x.dtype).reshape(-1, 1), regions], 1)
    size = (call["output_height"], call["output_width"])
    samples = call["sampling_ratio"] or -1
    return align(x, boxes, size, call["spatial_scale"], samples, half)
