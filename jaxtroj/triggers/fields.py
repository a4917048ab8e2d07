"""Coarse grids as smooth fields over a picture: interpolation as two matrix products.

    field = rows @ grid @ columns^T

The corners of the grid lie on the corner pixels of the picture. The weights depend on sizes alone,
so they are constants of the compiled program, and the gradient needs no scatter.

Reference:
  Keys, Cubic Convolution Interpolation for Digital Image Processing, IEEE TASSP 1981; its free
  parameter is -0.75, as where warps were published.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.triggers.trigger import Shape

_SHARPNESS = -0.75


def linear(grid: jax.Array, shape: Shape) -> jax.Array:
    """`[k, l, c]` interpolated linearly to `[h, w, c]`."""
    return _spread(grid, shape, _tent)


def cubic(grid: jax.Array, shape: Shape) -> jax.Array:
    """`[k, l, c]` interpolated by cubic convolution to `[h, w, c]`; it may go beyond its values."""
    return _spread(grid, shape, _keys)


def _spread(grid: jax.Array, shape: Shape, kernel) -> jax.Array:
    rows, columns = (
        jnp.asarray(_weights(size, count, kernel), grid.dtype)
        for size, count in zip(shape, grid.shape[:2], strict=True)
    )
    # In full precision: accelerators would else round the places of pixels.
    highest = jax.lax.Precision.HIGHEST
    return jnp.einsum("ik,jl,klc->ijc", rows, columns, grid, precision=highest)


def _weights(size: int, count: int, kernel) -> np.ndarray:
    """Weight `[size, count]` of each grid point at each pixel; beyond the grid its edge goes on."""
    places = np.arange(size) * (count - 1) / max(size - 1, 1)
    weights = np.zeros((size, count))
    for tap in range(-1, 3):
        points = np.floor(places).astype(int) + tap
        np.add.at(
            weights, (np.arange(size), np.clip(points, 0, count - 1)), kernel(places - points)
        )
    return weights


def _tent(distance: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - np.abs(distance))


def _keys(distance: np.ndarray) -> np.ndarray:
    d, a = np.abs(distance), _SHARPNESS
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * (d**3 - 5 * d**2 + 8 * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
