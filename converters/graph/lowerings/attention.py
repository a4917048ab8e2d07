"""Scaled dot-product attention.

Reference: Vaswani et al., Attention Is All You Need, https://arxiv.org/abs/1706.03762, 2017.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from converters.graph.precision import as_type, in_float32, widened
from converters.graph.registry import Restricted, lowers


@lowers("aten.scaled_dot_product_attention.default", restriction="without dropout")
@in_float32
def attention(query, key, value, mask, dropout, causal, scale=None, enable_gqa=False):
    """softmax(q k^T scale + mask) v over `[..., t, d]`; a boolean mask says what is seen.

    A query that sees nothing gets zeros, as in torch.
    """
    if dropout:
        raise Restricted("dropout is random")
    if enable_gqa:
        copies = query.shape[-3] // key.shape[-3]
        key, value = jnp.repeat(key, copies, -3), jnp.repeat(value, copies, -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = jnp.matmul(query, jnp.swapaxes(key, -1, -2)) * scale
    if causal:
        mask = np.tri(*scores.shape[-2:], dtype=bool)
    if mask is None:
        return jnp.matmul(jax.nn.softmax(scores, -1), value)
    scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    return jnp.matmul(safe_softmax(scores, -1), value)


@lowers("aten._safe_softmax.default")
def safe_softmax(x, dim, dtype=None):
    """Softmax of x in that type, zeros where every element is minus infinity."""
    x = widened(as_type(x, dtype))
    hopeless = jnp.all(x == -jnp.inf, axis=dim, keepdims=True)
    return jnp.where(hopeless, 0, jax.nn.softmax(jnp.where(hopeless, 0, x), dim))
