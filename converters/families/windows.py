"""Windows over NHWC maps: padding, and the strided view under each tap."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from converters.errors import ConversionError

Pair = tuple[int, int]
# (before, after) of the rows, then of the columns.
Pads = tuple[Pair, Pair]
Features = Callable[[Any, jax.Array], jax.Array]


class WindowError(ConversionError):
    """A window is larger than the map, padding included, that it is to move over."""


def pair(value: int | tuple[int, ...]) -> Pair:
    """Return `(value, value)` for an int, or the two-element tuple itself."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def both_sides(padding: Pair) -> Pads:
    """As much padding before as after, of rows and of columns."""
    return (padding[0], padding[0]), (padding[1], padding[1])


def pad(x: jax.Array, pads: Pads, value: float = 0.0) -> jax.Array:
    """`[n, h, w, c]` with so many rows and columns of `value` around each map."""
    if not any(map(any, pads)):
        return x
    return jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=value)


def windows(x: jax.Array, window: Pair, stride: Pair) -> Iterator[jax.Array]:
    """Yield, for each tap of the window in row order, the strided view of `x` under it.

    Raises:
      WindowError: the window does not fit into the map.
    """
    n, height, width, channels = x.shape
    if window[0] > height or window[1] > width:
        raise WindowError(
            f"a window of {window[0]} x {window[1]} with stride {stride[0]} x {stride[1]} does not"
            f" fit into a map of {height} x {width}"
        )
    out = [(s - k) // t + 1 for s, k, t in zip((height, width), window, stride, strict=True)]
    for i in range(window[0]):
        for j in range(window[1]):
            stop = (n, i + stride[0] * (out[0] - 1) + 1, j + stride[1] * (out[1] - 1) + 1, channels)
            yield lax.slice(x, (0, i, j, 0), stop, (1, *stride, 1))


def of_pictures(features: Features) -> Features:
    """A network's method on pictures `[n, h, w, c]`, whose errors of windows name their size."""

    @wraps(features)
    def named(module: Any, images: jax.Array) -> jax.Array:
        try:
            return features(module, images)
        except WindowError as error:
            height, width = images.shape[1:3]
            raise ConversionError(
                f"pictures of {height} x {width} pixels are too small for this network: {error};"
                " give pictures of the size that it was trained on"
            ) from error

    return named
