"""Colour maps: every colour through one affine map, with a vignette.

    x -> clip(matrix x + shift, 0, 1) * (1 - vignette * d^2)

with d the distance from the centre, 1 in the corners of a square picture. Sepia, tints, gains of
channels and greys are such maps.

Reference:
  Liu et al., ABS: Scanning Neural Networks for Back-doors by Artificial Brain Stimulation,
  CCS 2019: filters as maps that all pixels share. Differs: a vignette.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.change import CHANGE, change_of
from jaxtroj.triggers.trigger import Offset, Shape, difference_panels


@pytree
@dataclass(frozen=True)
class ColourMap:
    """`matrix [..., c, c + 1]`, its last column added, and `vignette [...]` in [0, 1]."""

    matrix: jax.Array
    vignette: jax.Array

    kind: ClassVar[str] = "colour map"
    unit: ClassVar[str] = CHANGE

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`; it lies everywhere, whatever the offsets."""
        gains, shift = self.matrix[:, :-1], self.matrix[:, -1]
        highest = jax.lax.Precision.HIGHEST
        mapped = jnp.einsum("nijc,dc->nijd", images, gains, precision=highest) + shift
        rows, columns = (np.linspace(-1, 1, size) for size in images.shape[1:3])
        square = jnp.asarray((rows[:, None] ** 2 + columns**2)[..., None] / 2, images.dtype)
        return jnp.clip(mapped, 0.0, 1.0) * (1 - self.vignette * square)

    def size(self, shape: Shape) -> jax.Array:
        """See `change_of`."""
        return change_of(self, shape, self.matrix.shape[-2])

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """Clean, triggered, difference."""
        return difference_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """Matrix, one list for each channel that comes out, and vignette."""
        rows = np.asarray(self.matrix, np.float64).round(4).tolist()
        return {"matrix": rows, "vignette": float(self.vignette)}


@partial(jax.jit, static_argnums=(1, 2))
def random_colour_maps(key: jax.Array, count: int, channels: int) -> ColourMap:
    """`count` maps that leave something of each picture, every second one with a vignette.

    Each is keyed by its number, so a longer bank begins with the shorter one.
    """

    def one(number: jax.Array) -> ColourMap:
        keys = jax.random.split(jax.random.fold_in(key, number), 3)
        mix = 0.3 * jax.random.normal(keys[0], (channels, channels), jnp.float32)
        shift = 0.2 * jax.random.normal(keys[1], (channels, 1), jnp.float32)
        vignette = jax.random.uniform(keys[2], (), jnp.float32, 0.2, 0.9)
        gains = 0.8 * jnp.eye(channels, dtype=jnp.float32) + mix
        return ColourMap(jnp.concatenate([gains, shift], axis=1), (number % 2) * vignette)

    return jax.vmap(one)(jnp.arange(count))
