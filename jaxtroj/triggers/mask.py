"""Triggers: a mask and a pattern, how they are stamped, how well they work.

Shapes: `n` images of `h` x `w` pixels and `c` channels, values in [0, 1]; `a` candidates (arms).
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trigger:
    """Blending weight `mask [..., h, w, 1]` and `pattern [..., h, w, c]`, both in [0, 1]."""

    mask: jax.Array
    pattern: jax.Array


def stamp(images: jax.Array, trigger: Trigger) -> jax.Array:
    """`(1 - mask) * image + mask * pattern`, broadcast over leading axes."""
    return images + trigger.mask * (trigger.pattern - images)


def mask_l1(trigger: Trigger) -> jax.Array:
    """Sum of the mask over its pixels, in pixels, `[...]`."""
    return trigger.mask.sum(axis=(-3, -2, -1))


def shift(trigger: Trigger, offset: jax.Array) -> Trigger:
    """Move a trigger by `offset [2]` whole pixels (rows, columns), wrapping at the borders."""
    return Trigger(roll(trigger.mask, offset), roll(trigger.pattern, offset))


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


def margins(logits: jax.Array, target: jax.Array) -> jax.Array:
    """Logit of the target class less the largest other logit; logits `[..., classes]`."""
    is_target = jnp.arange(logits.shape[-1]) == target
    others = jnp.where(is_target, -jnp.inf, logits).max(axis=-1)
    return jnp.where(is_target, logits, -jnp.inf).max(axis=-1) - others


@jax.jit
def all_margins(logits: jax.Array) -> jax.Array:
    """Margin of every class taken as target, `[..., classes]` of logits `[..., classes]`."""
    top, second = jnp.split(jax.lax.top_k(logits, 2)[0], 2, axis=-1)
    return logits - jnp.where(logits == top, second, top)


@partial(jax.jit, static_argnames="axis")
def share(values: jax.Array, counted: jax.Array, axis: int = -1) -> jax.Array:
    """Mean of `values` over the entries `counted` (bool); 0 where none is counted."""
    weights = counted.astype(values.dtype)
    return (values * weights).sum(axis) / jnp.maximum(weights.sum(axis), 1.0)


def attack_success_rate(logits: jax.Array, sources: jax.Array, target: jax.Array) -> jax.Array:
    """Fraction of images of other classes that are classified as the target.

    Args:
      logits: of stamped images, `[..., n, classes]`.
      sources: class of each image, int `[n]`.
      target: target class.
    """
    return share((margins(logits, target) > 0).astype(logits.dtype), sources != target)
