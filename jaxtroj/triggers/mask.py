"""Free masks: a blending weight and a colour of its own for every pixel.

    x -> (1 - mask) * x + mask * pattern

Every kind that blends something in can be drawn as one, and is shown and described by it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.trigger import Offset, Shape

SHARE = "share of the picture"
"""Unit of all kinds that can be drawn as a mask: the mask's mean."""


@pytree
@dataclass(frozen=True)
class FreeMask:
    """Blending weight `mask [..., h, w, 1]` and `pattern [..., h, w, c]`, both in [0, 1].

    It is moved as a whole; what leaves the picture at one edge comes back at the other.
    """

    mask: jax.Array
    pattern: jax.Array

    kind: ClassVar[str] = "mask"
    unit: ClassVar[str] = SHARE

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`."""
        return stamp(images, jax.vmap(shift, in_axes=(None, 0))(self, offsets))

    def size(self, shape: Shape) -> jax.Array:
        """Mean of the mask."""
        return mask_l1(self) / (shape[0] * shape[1])

    def drawn(self, shape: Shape, offset: Offset) -> "FreeMask":
        """See `Drawn`."""
        return shift(self, jnp.asarray(offset))

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """See `mask_panels`."""
        return mask_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """See `mask_facts`."""
        return mask_facts(self, shape, offset)


class Drawn(Protocol):
    """A kind that can be drawn as a mask."""

    def drawn(self, shape: Shape, offset: Offset) -> FreeMask:
        """As mask and pattern in a picture of `shape`, moved by `offset [2]` if the kind moves."""
        ...


def stamp(images: jax.Array, trigger: FreeMask) -> jax.Array:
    """`(1 - mask) * image + mask * pattern`, broadcast over leading axes."""
    return images + trigger.mask * (trigger.pattern - images)


def mask_l1(trigger: FreeMask) -> jax.Array:
    """Sum of the mask over its pixels, in pixels, `[...]`."""
    return trigger.mask.sum(axis=(-3, -2, -1))


def shift(trigger: FreeMask, offset: jax.Array) -> FreeMask:
    """Move a mask by `offset [2]` whole pixels (rows, columns), wrapping at the borders."""
    return FreeMask(roll(trigger.mask, offset), roll(trigger.pattern, offset))


def roll(x: jax.Array, offset: jax.Array) -> jax.Array:
    """`jnp.roll` of `[..., h, w, c]` by `offset [2]`, fast where the offset is traced.

    As two products with permutation matrices: rolled by indexing, the gradient is a scatter, which
    on CPU takes longer than the network behind it.
    """
    rows, columns = (
        _permutation(x.shape[axis], offset[i], x.dtype) for i, axis in ((0, -3), (1, -2))
    )
    # In full precision: accelerators would else round the values that are only moved.
    highest = jax.lax.Precision.HIGHEST
    return jnp.einsum("ij,...jlc,kl->...ikc", rows, x, columns, precision=highest)


def _permutation(size: int, offset: jax.Array, dtype) -> jax.Array:
    """Matrix `[size, size]` that moves element `j` to `(j + offset) % size`."""
    goes_to = (jnp.arange(size) + offset) % size
    return (jnp.arange(size)[:, None] == goes_to[None, :]).astype(dtype)


@partial(jax.jit, static_argnums=1)
def _drawn(trigger: Drawn, shape: Shape, offset: jax.Array) -> FreeMask:
    """As one program: drawn operation by operation a polygon takes some sixty."""
    return trigger.drawn(shape, offset)


def mask_panels(trigger: Drawn, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
    """Clean picture, triggered picture, mask, masked pattern: the picture of what blends in."""
    drawn = _drawn(trigger, (clean.shape[0], clean.shape[1]), jnp.asarray(offset))
    mask, pattern = (np.asarray(part, np.float32) for part in (drawn.mask, drawn.pattern))
    shown = mask * pattern
    return clean, (1 - mask) * clean + shown, np.broadcast_to(mask, clean.shape), shown


def mask_facts(trigger: Drawn, shape: Shape, offset: Offset) -> dict[str, Any]:
    """Sum of the mask in pixels, and its centre of mass in pixels from the top left one."""
    mask = np.asarray(_drawn(trigger, shape, jnp.asarray(offset)).mask)[..., 0]
    weight = max(float(mask.sum()), 1e-12)
    row, column = (float((axis * mask).sum()) / weight for axis in np.indices(mask.shape))
    return {"mask_l1": float(mask.sum()), "row": round(row, 2), "column": round(column, 2)}
