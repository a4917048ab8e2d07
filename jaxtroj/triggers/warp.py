"""Warps: every pixel moves a little, by a smooth field.

    x'[p] = x[p + strength * cubic(grid / mean |grid|)[p]]

read bilinearly, places beyond the border at the border.

Reference:
  Nguyen and Tran, WaNet: Imperceptible Warping-based Backdoor Attack, ICLR 2021,
  https://arxiv.org/abs/2102.10369. Differs: `strength` is in pixels; their s is twice that.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.fields import cubic
from jaxtroj.triggers.trigger import Offset, Shape, difference_panels


@pytree
@dataclass(frozen=True)
class Warp:
    """`grid [..., k, k, 2]`: offsets (rows, columns) of control points up to a common factor.

    `strength [...]` is their mean absolute value in pixels.
    """

    grid: jax.Array
    strength: jax.Array

    kind: ClassVar[str] = "warp"
    unit: ClassVar[str] = "pixels moved"

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`; it lies everywhere, whatever the offsets."""
        moves = self._moves((images.shape[1], images.shape[2])).astype(images.dtype)
        places, corners = [], []
        for axis in (0, 1):
            size = images.shape[1 + axis]
            own = jnp.arange(size, dtype=images.dtype).reshape((-1, 1) if axis == 0 else (1, -1))
            place = jnp.clip(own + moves[..., axis], 0, size - 1)
            low = jnp.floor(jax.lax.stop_gradient(place)).astype(jnp.int32)
            places.append((place - low)[..., None])
            corners.append((low, jnp.minimum(low + 1, size - 1)))
        (up, down), (left, right) = corners
        row, column = places
        above = _between(images[:, up, left], images[:, up, right], column)
        below = _between(images[:, down, left], images[:, down, right], column)
        return jnp.clip(_between(above, below, row), 0.0, 1.0)

    def size(self, shape: Shape) -> jax.Array:
        """How far a pixel moves along an axis, on average, in pixels."""
        return jnp.abs(self._moves(shape)).mean()

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """Clean, triggered, difference."""
        return difference_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """Number of control points along a side, and the strength in pixels."""
        return {"points": self.grid.shape[0], "strength": round(float(self.strength), 4)}

    def _moves(self, shape: Shape) -> jax.Array:
        """Pixels `[h, w, 2]` to the place that each pixel is read at."""
        mean = jnp.maximum(jnp.abs(self.grid).mean(), 1e-12)
        return cubic(self.strength * self.grid / mean, shape)


def _between(first: jax.Array, second: jax.Array, share: jax.Array) -> jax.Array:
    return first + share * (second - first)


@partial(jax.jit, static_argnums=(1, 2))
def random_warps(key: jax.Array, count: int, points: int, strength: jax.Array) -> Warp:
    """`count` warps of `points` x `points` uniform offsets, each keyed by its number."""
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count))
    shape = (points, points, 2)
    grids = jax.vmap(lambda k: jax.random.uniform(k, shape, jnp.float32, -1, 1))(keys)
    return Warp(grids, jnp.broadcast_to(jnp.asarray(strength, jnp.float32), (count,)))
