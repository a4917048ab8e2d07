"""Pooling over windows, one axis after the other, with channels last."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from converters.families import pooling
from converters.graph.lowerings.convolution import batched, each, unbatched
from converters.graph.registry import OWN, lowers

_PLANE, _MOST_TAPS = 2, 9  # spatial axes, and taps of the largest window in one chain


def _lowest(dtype):
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).min


class _Axis:
    """Windows along one axis of a feature map."""

    def __init__(
        self, size: int, window: int, stride: int, padding: int, dilation: int, ceil: bool
    ):
        self.window, self.stride, self.padding, self.dilation = window, stride, padding, dilation
        reach = dilation * (window - 1) + 1
        room = size + 2 * padding - reach
        self.count = (-(-room // stride) if ceil else room // stride) + 1
        # A window that torch would start in the right padding is left out.
        if ceil and (self.count - 1) * stride >= size + padding:
            self.count -= 1
        self.size = size
        self.after = max(0, (self.count - 1) * stride + reach - size - padding)

    def taps(self, x, axis: int, fill):
        """Yield the number of each tap and the elements of x that it sees."""
        width = [(0, 0)] * x.ndim
        width[axis] = (self.padding, self.after)
        if any(width[axis]):
            x = jnp.pad(x, width, constant_values=fill)
        for tap in range(self.window):
            start = tap * self.dilation
            stop = start + (self.count - 1) * self.stride + 1
            yield tap, lax.slice_in_dim(x, start, stop, self.stride, axis)

    def starts(self) -> np.ndarray:
        """Where each window begins, negative in the padding."""
        return np.arange(self.count) * self.stride - self.padding

    def divisors(self, include_padding: bool) -> np.ndarray:
        """How many elements the mean of each window counts."""
        begin = self.starts()
        end = np.minimum(begin + self.window, self.size + self.padding)
        if not include_padding:
            begin, end = np.maximum(begin, 0), np.minimum(end, self.size)
        return end - begin


def _axes(shape, window, stride, padding, dilation, ceil_mode) -> list[_Axis]:
    space = len(shape)
    window = each(window, space)
    stride = each(stride, space) if stride not in ((), None) else window
    rest = (each(padding, space), each(dilation, space))
    return [
        _Axis(*numbers, ceil_mode) for numbers in zip(shape, window, stride, *rest, strict=True)
    ]


def _max_pool(space, x, window, stride, padding, dilation, ceil_mode):
    """Maxima `[n, ..., c]` and where each lies in its plane, counted in rows.

    Rows after columns finds the first of equal maxima in reading order, as torch does.
    """
    axes = _axes(x.shape[1:-1], window, stride, padding, dilation, ceil_mode)
    y, place = x, jnp.zeros((1,) * x.ndim, np.int32)
    scale = 1
    for axis in reversed(range(space)):
        y, place = _max_along(y, place, axis + 1, axes[axis], scale)
        scale *= axes[axis].size
    if _in_one_go(x, axes):
        shape = [(axis.window, axis.stride, (axis.padding, axis.after)) for axis in axes]
        y = pooling.max_pool(x, *zip(*shape, strict=True))
    return y, jnp.broadcast_to(place, y.shape)


def _in_one_go(x, axes: list[_Axis]) -> bool:
    """Whether the window is small enough for one chain; XLA drops the maxima by axes then."""
    return (
        len(axes) == _PLANE
        and jnp.issubdtype(x.dtype, jnp.floating)
        and all(axis.dilation == 1 for axis in axes)
        and math.prod(axis.window for axis in axes) <= _MOST_TAPS
    )


def _max_along(x, place, axis: int, windows: _Axis, scale: int):
    shape = [1] * x.ndim
    shape[axis] = windows.count
    place = jnp.broadcast_to(place, x.shape)
    best: Any = None
    where: Any = None
    places = windows.taps(place, axis, 0)
    for (tap, values), (_, seen) in zip(
        windows.taps(x, axis, _lowest(x.dtype)), places, strict=True
    ):
        own = (windows.starts() + tap * windows.dilation).reshape(shape) * scale
        seen = seen + own.astype(np.int32)
        if best is None:
            best, where = values, seen
        else:
            better = pooling.above(values, best)
            best, where = jnp.where(better, values, best), jnp.where(better, seen, where)
    return best, where


def _register_max_pool(space: int) -> None:
    @lowers(f"aten.max_pool{space}d_with_indices.default", layout=OWN)
    def with_indices(x, window, stride, padding, dilation, ceil_mode):
        """Maximum over windows, and where it was found."""
        x, had_batch = batched(x, space)
        y, place = _max_pool(space, x, window, stride, padding, dilation, ceil_mode)
        return unbatched(y, had_batch), unbatched(place, had_batch)

    @lowers(f"aten.max_pool{space}d.default", layout=OWN)
    def values(x, window, stride, padding, dilation, ceil_mode):
        """Maximum over windows."""
        return with_indices(x, window, stride, padding, dilation, ceil_mode)[0]


def _avg_pool(space, x, window, stride, padding, ceil_mode, include_padding, divisor):
    x, had_batch = batched(x, space)
    axes = _axes(x.shape[1:-1], window, stride, padding, 1, ceil_mode)
    for axis, windows in enumerate(axes, 1):
        taps = [values for _, values in windows.taps(x, axis, 0)]
        x = sum(taps[1:], taps[0])
    if divisor is not None:
        return unbatched(x / divisor, had_batch)
    counts = [windows.divisors(include_padding) for windows in axes]
    if all((count == count[0]).all() for count in counts):
        return unbatched(x / math.prod(int(count[0]) for count in counts), had_batch)
    total = np.asarray(1)
    for count in counts:
        total = total[..., None] * count
    return unbatched(x / total[..., None].astype(x.dtype), had_batch)


@lowers("aten.avg_pool1d.default", layout=OWN)
def avg_pool1d(x, window, stride, padding, ceil_mode, count_include_pad):
    """Mean over windows."""
    return _avg_pool(1, x, window, stride, padding, ceil_mode, count_include_pad, None)


@lowers("aten.avg_pool2d.default", layout=OWN)
def avg_pool2d(x, window, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Mean over windows."""
    return _avg_pool(2, x, window, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lowers("aten.avg_pool3d.default", layout=OWN)
def avg_pool3d(x, window, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Mean over windows."""
    return _avg_pool(3, x, window, stride, padding, ceil_mode, count_include_pad, divisor_override)


for _space in (1, 2, 3):
    _register_max_pool(_space)
