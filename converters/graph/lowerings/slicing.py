"""Parts of tensors by static positions, and writing into them."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from converters.graph.layout import ChannelsLast, axis_of, logical
from converters.graph.registry import OWN, lowers


def _range(size: int, start, end, step: int) -> slice:
    """torch's bounds of a slice, clamped as torch clamps them."""
    begin, stop, _ = slice(start, end, 1).indices(size)
    return slice(begin, max(begin, stop), step)


def _at(x, dim: int, part) -> tuple:
    index: list = [slice(None)] * x.ndim
    index[dim] = part
    return tuple(index)


@lowers("aten.slice.Tensor", "aten.slice_copy.Tensor", layout=OWN)
def slice_(x, dim, start, end, step):
    """Every `step`-th element from `start` to `end`."""
    part = _range(x.shape[dim], start, end, step)
    if (part.start, part.stop, step) == (0, x.shape[dim], 1):
        return x
    last = isinstance(x, ChannelsLast)
    array, axis = (x.array, axis_of(dim, x.ndim)) if last else (jnp.asarray(x), dim % x.ndim)
    piece = lax.slice_in_dim(array, part.start, part.stop, step, axis)
    return ChannelsLast(piece) if last else piece


@lowers("aten.narrow.default")
def narrow(x, dim, start, length):
    """`length` elements from `start`."""
    start = start % x.shape[dim] if start < 0 else start
    return lax.slice_in_dim(x, start, start + length, axis=dim % x.ndim)


@lowers("aten.select.int", "aten.select_copy.int", layout=OWN)
def select(x, dim, index):
    """One slice along a dimension."""
    if isinstance(x, ChannelsLast):
        axis = axis_of(dim, x.ndim)
        piece = lax.index_in_dim(x.array, index, axis, keepdims=True)
        return jnp.squeeze(logical(ChannelsLast(piece)), dim)
    return lax.index_in_dim(jnp.asarray(x), index, dim % x.ndim, keepdims=False)


@lowers("aten.slice_scatter.default")
def slice_scatter(x, source, dim, start, end, step):
    """x with a slice replaced."""
    return jnp.asarray(x).at[_at(x, dim, _range(x.shape[dim], start, end, step))].set(source)


@lowers("aten.select_scatter.default")
def select_scatter(x, source, dim, index):
    """x with one slice along a dimension replaced."""
    return jnp.asarray(x).at[_at(x, dim, index)].set(source)


@lowers("aten.unfold.default")
def unfold(x, dim, size, step):
    """Windows along a dimension, as a last dimension more."""
    if not x.ndim:
        return x.reshape(1)
    dim = dim % x.ndim
    starts = np.arange(0, x.shape[dim] - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size), axis=dim)
    return jnp.moveaxis(windows, dim + 1, -1)


def _corners(size: int, window: int, dilation: int, padding: int, stride: int) -> np.ndarray:
    """Positions in the padded axis that each window sees, `[window, places]`."""
    count = (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    return np.arange(window)[:, None] * dilation + np.arange(count) * stride


@lowers("aten.im2col.default")
def im2col(x, kernel, dilation, padding, stride):
    """Windows of pictures as columns, `[n, c kh kw, places]`."""
    had_batch = x.ndim == 4
    x = x if had_batch else x[None]
    n, c, *size = x.shape
    rows, columns = (
        _corners(*numbers) for numbers in zip(size, kernel, dilation, padding, stride, strict=True)
    )
    x = jnp.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    windows = x[:, :, rows[:, None, :, None], columns[None, :, None, :]]
    y = windows.reshape(n, c * kernel[0] * kernel[1], -1)
    return y if had_batch else y[0]


@lowers("aten.col2im.default")
def col2im(x, size, kernel, dilation, padding, stride):
    """Columns added up at the places of their windows, the transpose of `im2col`."""
    had_batch = x.ndim == 3
    x = x if had_batch else x[None]
    rows, columns = (
        _corners(*numbers) for numbers in zip(size, kernel, dilation, padding, stride, strict=True)
    )
    windows = x.reshape(x.shape[0], -1, *kernel, rows.shape[1], columns.shape[1])
    padded = [s + 2 * p for s, p in zip(size, padding, strict=True)]
    y = jnp.zeros((*windows.shape[:2], *padded), x.dtype)
    y = y.at[:, :, rows[:, None, :, None], columns[None, :, None, :]].add(windows)
    (top, left), (height, width) = padding, size
    y = y[:, :, top : top + height, left : left + width]
    return y if had_batch else y[0]


@lowers("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(x, offset, first, second):
    """A diagonal of two dimensions, as the last one."""
    return jnp.diagonal(x, offset, first, second)


@lowers("aten.diag_embed.default")
def diag_embed(x, offset, first, second):
    """The last dimension as a diagonal."""
    size = x.shape[-1] + abs(offset)
    steps = np.arange(x.shape[-1])
    rows, columns = steps + max(-offset, 0), steps + max(offset, 0)
    y = jnp.zeros((*x.shape[:-1], size, size), x.dtype).at[..., rows, columns].set(x)
    return jnp.moveaxis(y, (-2, -1), (first, second))


@lowers("aten.tril.default")
def tril(x, diagonal):
    """The lower triangle."""
    return jnp.tril(x, diagonal)


@lowers("aten.triu.default")
def triu(x, diagonal):
    """The upper triangle."""
    return jnp.triu(x, diagonal)
