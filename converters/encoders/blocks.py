"""What all text encoders are built of: groups of layers, attention, feed-forward, name rules."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.encoders.family import EncoderConfig
from converters.families.names import NameRule

# Hugging Face's names of the activations that the supported encoders use.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: 0.5 * x * (1 + jax.lax.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
ALIASES = {
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "swish": "silu",
}


class Group(nnx.Module):
    """Named parts, so that a Flax path is the torch path of the same parameter."""

    def __init__(self, **parts):
        for name, part in parts.items():
            setattr(self, name, part)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


class EmbeddingTable(nnx.Module):
    """Rows of an embedding; unlike `nnx.Embed` in the type that the parameters have now."""

    def __init__(self, rows: int, width: int, rngs):
        self.embedding = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (rows, width)))

    def __call__(self, ids: jax.Array | np.ndarray) -> jax.Array:
        return self.embedding[...][ids]


def linear(fan_in: int, fan_out: int, rngs) -> nnx.Linear:
    """A linear layer with bias."""
    return nnx.Linear(fan_in, fan_out, rngs=rngs)


def norm(width: int, eps: float, rngs) -> nnx.LayerNorm:
    """Layer norm over the last axis; the variance as torch computes it, from centred values."""
    return nnx.LayerNorm(width, epsilon=eps, use_fast_variance=False, rngs=rngs)


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    heads: int,
    allowed: jax.Array,
    bias: jax.Array | None = None,
) -> jax.Array:
    """Scaled dot-product attention.

    Args:
      query, key, value: `[n, t, heads * d]`.
      heads: number of heads.
      allowed: truth values that broadcast to `[n, heads, t, t]`: may query i see key j. A query
        that may see none gets the mean of all values, so nothing becomes NaN.
      bias: added to the scores, broadcast to `[n, heads, t, t]`.

    Returns:
      `[n, t, heads * d]`.
    """
    n, t, width = query.shape
    split = (n, t, heads, width // heads)
    query = query.reshape(split) * (width // heads) ** -0.5
    scores = jnp.einsum("nqhd,nkhd->nhqk", query, key.reshape(split))
    scores = scores if bias is None else scores + bias
    scores = jnp.where(allowed, scores, jnp.finfo(scores.dtype).min)
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("nhqk,nkhd->nqhd", weights, value.reshape(split)).reshape(n, t, width)


def embeddings(config: EncoderConfig, rngs, **more: nnx.Module) -> Group:
    """Tables of words and positions and the norm after their sum; `more` are further tables."""
    return Group(
        word_embeddings=EmbeddingTable(config.vocab_size, config.width, rngs),
        position_embeddings=EmbeddingTable(config.positions, config.width, rngs),
        LayerNorm=norm(config.width, config.eps, rngs),
        **more,
    )


def counted_positions(ids: jax.Array, padding: int) -> jax.Array:
    """Rows of the table of positions for `ids` `[n, t]`: `padding` for that id wherever it stands,
    and the numbers after `padding` for all others."""
    valid = (ids != padding).astype(ids.dtype)
    return jnp.cumsum(valid, axis=1) * valid + padding


def seen(mask: jax.Array) -> jax.Array:
    """`allowed` of an encoder whose tokens see all valid ones: `[n, 1, 1, t]` of `[n, t]`."""
    return mask[:, None, None, :] > 0


def norm_rules(module: str) -> tuple[NameRule, ...]:
    """Rules for layer norms at torch paths `module`; `gamma` and `beta` are their names in 2018."""
    return (
        NameRule(rf"({module})\.(?:weight|gamma)", r"\1.scale", "vector"),
        NameRule(rf"({module})\.(?:bias|beta)", r"\1.bias", "vector"),
    )


def linear_rules(module: str) -> tuple[NameRule, ...]:
    """Rules for linear layers at torch paths `module` (no groups inside)."""
    return (
        NameRule(rf"({module})\.weight", r"\1.kernel", "linear"),
        NameRule(rf"({module})\.bias", r"\1.bias", "vector"),
    )


def embedding_rules(module: str) -> tuple[NameRule, ...]:
    """Rules for embedding tables at torch paths `module`; rows are tokens in both worlds."""
    return (NameRule(rf"({module})\.weight", r"\1.embedding", "table"),)


def post_norm_block(
    x: jax.Array,
    projections: tuple,
    feed_forward: tuple,
    attend: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    activation: str,
) -> jax.Array:
    """One transformer layer whose norms follow the residual sums: BERT, DistilBERT, MPNet.

    Args:
      x: `[n, t, d]`.
      projections: layers query, key, value, output, norm.
      feed_forward: layers up, down, norm.
      attend: attention of projected queries, keys and values.
      activation: a key of `ACTIVATIONS`.
    """
    query, key, value, output, first_norm = projections
    up, down, second_norm = feed_forward
    x = first_norm(x + output(attend(query(x), key(x), value(x))))
    return second_norm(x + down(ACTIVATIONS[activation](up(x))))
