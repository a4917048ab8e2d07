"""Margins of logits, and how often an attack succeeds by them.

A margin is the logit of one class less the largest of the others; it is positive where the class is
the answer.
"""

from functools import partial

import jax
import jax.numpy as jnp


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
      logits: of triggered images, `[..., n, classes]`.
      sources: class of each image, int `[n]`.
      target: target class.
    """
    return share((margins(logits, target) > 0).astype(logits.dtype), sources != target)
