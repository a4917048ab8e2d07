"""MPNet: a post-norm encoder whose attention scores get a bias by relative position.

Reference:
  Song et al., MPNet: Masked and Permuted Pre-training, https://arxiv.org/abs/2004.09297, 2020.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.encoders import blocks
from converters.encoders.blocks import Group
from converters.encoders.family import POSITION_IDS, EncoderConfig, EncoderFamily
from converters.encoders.fields import MAX_LAYERS, Fields

PADDING = 1  # MPNet's code has this id fixed; valid tokens have positions from PADDING + 1.
# The buckets too are fixed in MPNet's code: exact up to a distance of 8, logarithmic up to 128.
_BUCKETS, _MAX_DISTANCE = 32, 128
_LAYER = r"encoder\.layer\.\d+\."
TABLE = (
    *blocks.embedding_rules(r"embeddings\.(?:word|position)_embeddings"),
    *blocks.embedding_rules(r"encoder\.relative_attention_bias"),
    *blocks.norm_rules(rf"embeddings\.LayerNorm|{_LAYER}(?:attention|output)\.LayerNorm"),
    *blocks.linear_rules(rf"{_LAYER}(?:attention\.attn\.[qkvo]|(?:intermediate|output)\.dense)"),
)


@dataclass(frozen=True)
class MPNetConfig(EncoderConfig):
    """Static description of an MPNet encoder."""

    @property
    def max_tokens(self) -> int:
        """Longest input; the first positions are those of padding."""
        return self.positions - PADDING - 1

    def build(self, rngs) -> "MPNet":
        return MPNet(self, rngs)


class MPNet(nnx.Module):
    """MPNet without pooler."""

    def __init__(self, config: MPNetConfig, rngs):
        self.config = config
        self.embeddings = blocks.embeddings(config, rngs)
        self.encoder = Group(
            layer=nnx.List([_layer(config, rngs) for _ in range(config.layers)]),
            relative_attention_bias=blocks.EmbeddingTable(_BUCKETS, config.heads, rngs),
        )

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        parts, encoder = self.embeddings, self.encoder
        positions = blocks.counted_positions(ids, PADDING)
        x = parts.LayerNorm(parts.word_embeddings(ids) + parts.position_embeddings(positions))
        buckets = relative_buckets(ids.shape[1])
        bias = jnp.transpose(encoder.relative_attention_bias(buckets), (2, 0, 1))
        allowed = blocks.seen(mask)

        def attend(query, key, value):
            return blocks.attention(query, key, value, self.config.heads, allowed, bias)

        for layer in encoder.layer:
            attn = layer.attention.attn
            x = blocks.post_norm_block(
                x,
                (attn.q, attn.k, attn.v, attn.o, layer.attention.LayerNorm),
                (layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
                attend,
                self.config.activation,
            )
        return x


def _layer(config: MPNetConfig, rngs) -> Group:
    width, inner = config.width, config.inner
    attn = Group(**{name: blocks.linear(width, width, rngs) for name in "qkvo"})
    return Group(
        attention=Group(attn=attn, LayerNorm=blocks.norm(width, config.eps, rngs)),
        intermediate=Group(dense=blocks.linear(width, inner, rngs)),
        output=Group(
            dense=blocks.linear(inner, width, rngs),
            LayerNorm=blocks.norm(width, config.eps, rngs),
        ),
    )


def relative_buckets(tokens: int) -> np.ndarray:
    """Bucket of each pair (query, key), int32 `[t, t]`: the sign, then the distance."""
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    half = _BUCKETS // 2
    exact = half // 2
    far = np.abs(distance).astype(np.float32)
    # In single precision and truncated, as the original does.
    scale = np.log(np.maximum(far, 1) / np.float32(exact)) / np.float32(
        math.log(_MAX_DISTANCE / exact)
    )
    large = exact + (scale * np.float32(half - exact)).astype(np.int32)
    near = np.where(far < exact, np.abs(distance), np.minimum(large, half - 1))
    return (near + (distance < 0) * half).astype(np.int32)


def configure(values: Mapping, where: str) -> MPNetConfig:
    """See `EncoderFamily.configure`."""
    fields = Fields(values, where)
    fields.only("relative_attention_num_buckets", _BUCKETS)
    width = fields.whole("hidden_size", 768)
    return MPNetConfig(
        vocab_size=fields.whole("vocab_size", 30527),
        width=width,
        layers=fields.whole("num_hidden_layers", 12, MAX_LAYERS),
        heads=fields.heads("num_attention_heads", 12, width),
        inner=fields.whole("intermediate_size", 3072),
        positions=fields.whole("max_position_embeddings", 512),
        activation=fields.activation("hidden_act", "gelu"),
        eps=fields.eps("layer_norm_eps", 1e-12),
    )


FAMILY = EncoderFamily(
    configure=configure,
    prefix="mpnet",
    table=TABLE,
    ignored=(r"embeddings\.position_ids", r"pooler\..*"),
    heads=(r"lm_head\..*", r"classifier\..*", r"qa_outputs\..*"),
    classes={
        "": "MPNetModel",
        "embeddings": "MPNetEmbeddings",
        "encoder": "MPNetEncoder",
        "layer.#": "MPNetLayer",
        "attention": "MPNetAttention",
        "attn": "MPNetSelfAttention",
        "intermediate": "MPNetIntermediate",
        "output": "MPNetOutput",
    },
    buffers=(POSITION_IDS,),
)
