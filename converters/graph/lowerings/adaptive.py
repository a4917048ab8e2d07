"""Pooling to a given output size: windows of torch's uneven partition."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from converters.graph.lowerings.convolution import batched, each, unbatched
from converters.graph.registry import OWN, lowers


def _bounds(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each window begins and ends."""
    steps = np.arange(out)
    return steps * size // out, -(-(steps + 1) * size // out)


def _mean_along(x, axis: int, out: int):
    size = x.shape[axis]
    if out == size:
        return x
    if size % out == 0:
        split = (*x.shape[:axis], out, size // out, *x.shape[axis + 1 :])
        return x.reshape(split).mean(axis + 1)
    windows = zip(*_bounds(size, out), strict=True)
    # Each by itself: a product with shares would give all windows the NaN of one.
    parts = [
        lax.slice_in_dim(x, int(low), int(high), axis=axis).mean(axis) for low, high in windows
    ]
    return jnp.stack(parts, axis)


def _max_along(x, place, axis: int, out: int, scale: int):
    """Maxima along one axis and where they were found, the first of equal ones."""
    begin, end = _bounds(x.shape[axis], out)
    width = int((end - begin).max())
    seen = np.minimum(begin[:, None] + np.arange(width), end[:, None] - 1)
    windows = jnp.take(x, seen, axis=axis)
    shape = [1] * windows.ndim
    shape[axis], shape[axis + 1] = seen.shape
    places = jnp.take(place, seen, axis=axis) + (seen * scale).reshape(shape)
    best = jnp.argmax(windows, axis=axis + 1, keepdims=True)
    return (
        jnp.take_along_axis(windows, best, axis + 1).squeeze(axis + 1),
        jnp.take_along_axis(places, best, axis + 1).squeeze(axis + 1),
    )


def _sizes(output_size, x, space: int) -> list[int]:
    """Output sizes; None keeps the input's."""
    return [
        x.shape[i + 1] if out is None else out for i, out in enumerate(each(output_size, space))
    ]


def _register(space: int) -> None:
    @lowers(
        f"aten.adaptive_avg_pool{space}d.default",
        *((f"aten._adaptive_avg_pool{space}d.default",) if space > 1 else ()),
        layout=OWN,
    )
    def mean(x, output_size):
        """Mean over windows, as many as the output has places."""
        x, had_batch = batched(x, space)
        for axis, out in enumerate(_sizes(output_size, x, space), 1):
            x = _mean_along(x, axis, out)
        return unbatched(x, had_batch)

    @lowers(f"aten.adaptive_max_pool{space}d.default", layout=OWN)
    def maximum(x, output_size):
        """Maximum over windows, as many as the output has places, and where it was found."""
        x, had_batch = batched(x, space)
        place, scale = jnp.zeros(x.shape, int), 1
        sizes = _sizes(output_size, x, space)
        for axis in reversed(range(1, space + 1)):
            size = x.shape[axis]
            x, place = _max_along(x, place, axis, sizes[axis - 1], scale)
            scale *= size
        return unbatched(x, had_batch), unbatched(place, had_batch)


for _space in (1, 2, 3):
    _register(_space)
