"""Uniform-colour polygons with soft edges: the candidates of probe bank and patch search.

    x -> x + inside(pixel) * (colour - x)

A patch is a regular polygon around a point of each image. TrojAI's polygons are irregular, but a
network that learnt one reacts to its colour and size far more than to its outline.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.mask import SHARE, FreeMask, mask_facts, mask_panels, stamp
from jaxtroj.triggers.trigger import Offset, Shape

MAX_SIDES = 8
_EDGE_PIXELS = 0.7


@pytree
@dataclass(frozen=True)
class Patch:
    """One patch, or an array of them along leading axes.

    Attributes:
      colour: `[..., c]` in [0, 1], in the model's channel order.
      offset: `[..., 2]` from the anchor (rows, columns), as a share of the image's side.
      radius: `[...]` of the circle of equal area, as a share of the image's side.
      angle: `[...]` radians.
      sides: `[...]` int, 3 to 8.
      wraps: whether what leaves the picture at one edge comes back at the other; cut off if not.
    """

    colour: jax.Array
    offset: jax.Array
    radius: jax.Array
    angle: jax.Array
    sides: jax.Array
    wraps: bool = field(default=False, metadata={"static": True})

    kind: ClassVar[str] = "patch"
    unit: ClassVar[str] = SHARE

    def drawn(self, shape: Shape, offset: Offset) -> FreeMask:
        """See `Drawn`; moved from the picture's centre."""
        mask = self._mask(shape, jnp.asarray(offset))
        return FreeMask(mask, jnp.broadcast_to(self.colour, (*shape, self.colour.shape[-1])))

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`."""
        shape = (images.shape[1], images.shape[2])
        masks = jax.vmap(partial(self._mask, shape))(offsets)
        return stamp(images, FreeMask(masks, self.colour))

    def size(self, shape: Shape) -> jax.Array:
        """Mean of the mask at the picture's centre."""
        return self._mask(shape, jnp.zeros(2, jnp.int32)).mean()

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """See `mask_panels`."""
        return mask_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """See `mask_facts`."""
        return mask_facts(self, shape, offset)

    def _mask(self, shape: Shape, offset: jax.Array) -> jax.Array:
        """Mask `[h, w, 1]`, edges soft enough to learn from."""
        side = min(shape)
        turns = jnp.arange(MAX_SIDES, dtype=jnp.float32) / self.sides * 2 * jnp.pi + self.angle
        # The apothem of the regular polygon whose area is that of the circle of this radius.
        wedge = self.sides * jnp.tan(jnp.pi / self.sides)
        apothem = self.radius * side * jnp.sqrt(jnp.pi / wedge)
        y, x = (self._along(shape[axis], axis, offset, side) for axis in (0, 1))
        distance = jnp.sin(turns) * y[:, None, None] + jnp.cos(turns) * x[None, :, None]
        farthest = _largest(jnp.where(jnp.arange(MAX_SIDES) < self.sides, distance, -jnp.inf))
        return jax.nn.sigmoid((apothem - farthest) / _EDGE_PIXELS)[..., None]

    def _along(self, length: int, axis: int, offset: jax.Array, side: int) -> jax.Array:
        """Pixels from the polygon's middle to each row or column, `[length]`."""
        places = jnp.arange(length) - offset[axis]
        # Where a pixel's content was before the move: so a patch moves as a mask is rolled.
        places = places % length if self.wraps else places
        return places - length // 2 - self.offset[axis] * side


@jax.custom_jvp
def _largest(values: jax.Array) -> jax.Array:
    """Largest along the last axis, with a finite derivative.

    That of jax divides by how many values equal the largest. Compilers compute values anew where
    they are compared, rounded otherwise (fused multiply-add): then none may, and 0 / 0 is NaN.
    Here such a pixel has no derivative.
    """
    return values.max(axis=-1)


@_largest.defjvp
def _largest_jvp(primals, tangents):
    (values,), (change,) = primals, tangents
    found = _largest(values)
    is_best = (values == found[..., None]).astype(values.dtype)
    return found, (change * is_best).sum(axis=-1) / jnp.maximum(is_best.sum(axis=-1), 1.0)


@partial(jax.jit, static_argnums=(1, 2, 3))
def random_patches(key: jax.Array, count: int, channels: int, radii: tuple[float, ...]) -> Patch:
    """`count` patches: colours spread over the cube, radii in turn, small random offsets.

    Each candidate is keyed by its number, so a longer bank begins with the shorter one.
    """

    def one(number: jax.Array) -> Patch:
        keys = jax.random.split(jax.random.fold_in(key, number), 4)
        return Patch(
            colour=jax.random.uniform(keys[0], (channels,), jnp.float32),
            offset=0.05 * jax.random.normal(keys[1], (2,), jnp.float32),
            radius=jnp.asarray(radii, jnp.float32)[number % len(radii)],
            angle=jax.random.uniform(keys[2], (), jnp.float32, maxval=2 * jnp.pi),
            sides=jax.random.randint(keys[3], (), 3, MAX_SIDES + 1, jnp.int32),
        )

    return jax.vmap(one)(jnp.arange(count))


@partial(jax.jit, static_argnums=2)
def vary(key: jax.Array, patches: Patch, copies: int) -> Patch:
    """The patches, then `copies` neighbours of each: near in colour, offset and radius."""

    def neighbour(number: jax.Array, patch: Patch) -> Patch:
        keys = jax.random.split(jax.random.fold_in(key, number), 3)
        colour = patch.colour + 0.15 * jax.random.normal(keys[0], patch.colour.shape, jnp.float32)
        return Patch(
            colour=jnp.clip(colour, 0.0, 1.0),
            offset=jnp.clip(
                patch.offset + 0.04 * jax.random.normal(keys[1], (2,), jnp.float32), -0.2, 0.2
            ),
            radius=patch.radius * jnp.exp(0.15 * jax.random.normal(keys[2], (), jnp.float32)),
            angle=patch.angle,
            sides=patch.sides,
            wraps=patch.wraps,
        )

    count = patches.radius.shape[0]
    repeated = jax.tree.map(lambda x: x[jnp.arange(count * copies) % count], patches)
    neighbours = jax.vmap(neighbour)(jnp.arange(count * copies), repeated)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), patches, neighbours)
