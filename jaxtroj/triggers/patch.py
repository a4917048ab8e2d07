"""Uniform-colour polygons with soft edges: the candidates of probe bank and patch search.

A patch is a regular polygon around a point of each image. TrojAI's polygons are irregular, but a
network that learnt one reacts to its colour and size far more than to its outline.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from jaxtroj.triggers.mask import Trigger

MAX_SIDES = 8
_EDGE_PIXELS = 0.7


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Patch:
    """One patch, or an array of them along leading axes.

    Attributes:
      colour: `[..., c]` in [0, 1], in the model's channel order.
      offset: `[..., 2]` from the anchor (rows, columns), as a share of the image's side.
      radius: `[...]` of the circle of equal area, as a share of the image's side.
      angle: `[...]` radians.
      sides: `[...]` int, 3 to 8.
    """

    colour: jax.Array
    offset: jax.Array
    radius: jax.Array
    angle: jax.Array
    sides: jax.Array


def patch_mask(patch: Patch, centre: jax.Array, height: int, width: int) -> jax.Array:
    """Mask `[h, w, 1]` of a patch around `centre [2]` (pixels), edges soft enough to learn from."""
    side = min(height, width)
    turns = jnp.arange(MAX_SIDES, dtype=jnp.float32) / patch.sides * 2 * jnp.pi + patch.angle
    # The apothem of the regular polygon whose area is that of the circle of this radius.
    apothem = patch.radius * side * jnp.sqrt(jnp.pi / (patch.sides * jnp.tan(jnp.pi / patch.sides)))
    y = jnp.arange(height)[:, None, None] - centre[0] - patch.offset[0] * side
    x = jnp.arange(width)[None, :, None] - centre[1] - patch.offset[1] * side
    distance = jnp.sin(turns) * y + jnp.cos(turns) * x
    farthest = jnp.where(jnp.arange(MAX_SIDES) < patch.sides, distance, -jnp.inf).max(axis=-1)
    return jax.nn.sigmoid((apothem - farthest) / _EDGE_PIXELS)[..., None]


def patch_trigger(patch: Patch, centre: jax.Array, height: int, width: int) -> Trigger:
    """One patch as a trigger over the whole image."""
    mask = patch_mask(patch, centre, height, width)
    return Trigger(mask, jnp.broadcast_to(patch.colour, (height, width, patch.colour.shape[-1])))


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
        )

    count = patches.radius.shape[0]
    repeated = take(patches, jnp.arange(count * copies) % count)
    neighbours = jax.vmap(neighbour)(jnp.arange(count * copies), repeated)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), patches, neighbours)


@jax.jit
def take(patches: Patch, index: jax.Array) -> Patch:
    """The patches at `index`."""
    return jax.tree.map(lambda x: x[index], patches)
