"""BERT without pooler: learnt absolute positions, layer norms after the residual sums.

Reference:
  Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers,
  https://arxiv.org/abs/1810.04805, 2018.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
from flax import nnx

from converters.encoders import blocks
from converters.encoders.blocks import Group
from converters.encoders.family import (
    POSITION_IDS,
    TOKEN_TYPE_IDS,
    EncoderConfig,
    EncoderFamily,
)
from converters.encoders.fields import MAX_LAYERS, Fields

_LAYER = r"encoder\.layer\.\d+\."
TABLE = (
    *blocks.embedding_rules(r"embeddings\.(?:word|position|token_type)_embeddings"),
    *blocks.norm_rules(rf"embeddings\.LayerNorm|{_LAYER}(?:attention\.)?output\.LayerNorm"),
    *blocks.linear_rules(
        rf"{_LAYER}(?:attention\.self\.(?:query|key|value)"
        r"|attention\.output\.dense|(?:intermediate|output)\.dense)"
    ),
)


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """Static description of a BERT encoder.

    Attributes:
      token_types: rows of the table of token types; all tokens are of type 0.
      padding: id that is counted as no token, RoBERTa's; positions start after its number. None
        where each token's position is its place.
    """

    token_types: int
    padding: int | None = None

    @property
    def max_tokens(self) -> int:
        """Longest input."""
        return self.positions - (0 if self.padding is None else self.padding + 1)

    def build(self, rngs) -> "Bert":
        return Bert(self, rngs)


class Bert(nnx.Module):
    """BERT without pooler; all tokens are of type 0."""

    def __init__(self, config: BertConfig, rngs):
        self.config = config
        types = blocks.EmbeddingTable(config.token_types, config.width, rngs)
        self.embeddings = blocks.embeddings(config, rngs, token_type_embeddings=types)
        self.encoder = Group(layer=nnx.List([_layer(config, rngs) for _ in range(config.layers)]))

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        parts = self.embeddings
        words = parts.word_embeddings(ids) + parts.token_type_embeddings.embedding[0]
        x = parts.LayerNorm(words + self._positions(ids))
        allowed = blocks.seen(mask)

        def attend(query, key, value):
            return blocks.attention(query, key, value, self.config.heads, allowed)

        for layer in self.encoder.layer:
            inputs, output = layer.attention.self, layer.attention.output
            x = blocks.post_norm_block(
                x,
                (inputs.query, inputs.key, inputs.value, output.dense, output.LayerNorm),
                (layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
                attend,
                self.config.activation,
            )
        return x

    def _positions(self, ids: jax.Array) -> jax.Array:
        table, padding = self.embeddings.position_embeddings, self.config.padding
        if padding is None:
            return table.embedding[: ids.shape[1]]
        return table(blocks.counted_positions(ids, padding))


def _layer(config: BertConfig, rngs) -> Group:
    width, inner = config.width, config.inner
    inputs = {name: blocks.linear(width, width, rngs) for name in ("query", "key", "value")}
    attention = Group(output=_output(width, config, rngs))
    attention.self = Group(**inputs)  # No keyword can be called so.
    return Group(
        attention=attention,
        intermediate=Group(dense=blocks.linear(width, inner, rngs)),
        output=_output(inner, config, rngs),
    )


def _output(fan_in: int, config: BertConfig, rngs) -> Group:
    return Group(
        dense=blocks.linear(fan_in, config.width, rngs),
        LayerNorm=blocks.norm(config.width, config.eps, rngs),
    )


def configure(values: Mapping, where: str) -> BertConfig:
    """See `EncoderFamily.configure`."""
    fields = Fields(values, where)
    fields.only("position_embedding_type", "absolute")
    fields.only("is_decoder", False)
    fields.only("add_cross_attention", False)
    width = fields.whole("hidden_size", 768)
    return BertConfig(
        vocab_size=fields.whole("vocab_size", 30522),
        width=width,
        layers=fields.whole("num_hidden_layers", 12, MAX_LAYERS),
        heads=fields.heads("num_attention_heads", 12, width),
        inner=fields.whole("intermediate_size", 3072),
        positions=fields.whole("max_position_embeddings", 512),
        token_types=fields.whole("type_vocab_size", 2),
        activation=fields.activation("hidden_act", "gelu"),
        eps=fields.eps("layer_norm_eps", 1e-12),
    )


FAMILY = EncoderFamily(
    configure=configure,
    prefix="bert",
    table=TABLE,
    ignored=(r"embeddings\.(?:position|token_type)_ids", r"pooler\..*"),
    heads=(r"cls\..*", r"classifier\..*", r"qa_outputs\..*"),
    classes={
        "": "BertModel",
        "embeddings": "BertEmbeddings",
        "encoder": "BertEncoder",
        "layer.#": "BertLayer",
        "attention": "BertAttention",
        "self": "Bert(Sdpa)?SelfAttention",
        "intermediate": "BertIntermediate",
        "output": "Bert(Self)?Output",
    },
    buffers=(POSITION_IDS, TOKEN_TYPE_IDS),
)
