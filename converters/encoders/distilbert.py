"""DistilBERT: BERT's layers under other names, without token types.

Reference:
  Sanh et al., DistilBERT, a distilled version of BERT, https://arxiv.org/abs/1910.01108, 2019.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
from flax import nnx

from converters.encoders import blocks
from converters.encoders.blocks import Group
from converters.encoders.family import POSITION_IDS, EncoderConfig, EncoderFamily
from converters.encoders.fields import MAX_LAYERS, Fields
from converters.hub.aliases import own_names

# transformers' other names of entries of its configuration.
ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
_LAYER = r"transformer\.layer\.\d+\."
TABLE = (
    *blocks.embedding_rules(r"embeddings\.(?:word|position)_embeddings"),
    *blocks.norm_rules(rf"embeddings\.LayerNorm|{_LAYER}(?:sa|output)_layer_norm"),
    *blocks.linear_rules(rf"{_LAYER}(?:attention\.(?:q|k|v|out)_lin|ffn\.lin[12])"),
)


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """Static description of a DistilBERT encoder."""

    def build(self, rngs) -> "DistilBert":
        return DistilBert(self, rngs)


class DistilBert(nnx.Module):
    """DistilBERT; learnt and sinusoidal positions alike are read from the file."""

    def __init__(self, config: DistilBertConfig, rngs):
        self.config = config
        self.embeddings = blocks.embeddings(config, rngs)
        layers = [_layer(config, rngs) for _ in range(config.layers)]
        self.transformer = Group(layer=nnx.List(layers))

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        parts = self.embeddings
        positions = parts.position_embeddings.embedding[: ids.shape[1]]
        x = parts.LayerNorm(parts.word_embeddings(ids) + positions)
        allowed = blocks.seen(mask)

        def attend(query, key, value):
            return blocks.attention(query, key, value, self.config.heads, allowed)

        for layer in self.transformer.layer:
            attn, ffn = layer.attention, layer.ffn
            x = blocks.post_norm_block(
                x,
                (attn.q_lin, attn.k_lin, attn.v_lin, attn.out_lin, layer.sa_layer_norm),
                (ffn.lin1, ffn.lin2, layer.output_layer_norm),
                attend,
                self.config.activation,
            )
        return x


def _layer(config: DistilBertConfig, rngs) -> Group:
    width, inner = config.width, config.inner
    names = ("q_lin", "k_lin", "v_lin", "out_lin")
    return Group(
        attention=Group(**{name: blocks.linear(width, width, rngs) for name in names}),
        sa_layer_norm=blocks.norm(width, config.eps, rngs),
        ffn=Group(
            lin1=blocks.linear(width, inner, rngs),
            lin2=blocks.linear(inner, width, rngs),
        ),
        output_layer_norm=blocks.norm(width, config.eps, rngs),
    )


def configure(values: Mapping, where: str) -> DistilBertConfig:
    """See `EncoderFamily.configure`."""
    fields = Fields(own_names(values, ALIASES, where), where)
    width = fields.whole("dim", 768)
    return DistilBertConfig(
        vocab_size=fields.whole("vocab_size", 30522),
        width=width,
        layers=fields.whole("n_layers", 6, MAX_LAYERS),
        heads=fields.heads("n_heads", 12, width),
        inner=fields.whole("hidden_dim", 3072),
        positions=fields.whole("max_position_embeddings", 512),
        activation=fields.activation("activation", "gelu"),
        eps=1e-12,  # Fixed in DistilBERT's code.
    )


FAMILY = EncoderFamily(
    configure=configure,
    prefix="distilbert",
    table=TABLE,
    ignored=(r"embeddings\.position_ids",),
    heads=(r"vocab_\w+\..*", r"(?:pre_)?classifier\..*", r"qa_outputs\..*"),
    classes={
        "": "DistilBertModel",
        "embeddings": "Embeddings",
        "transformer": "Transformer",
        "layer.#": "TransformerBlock",
        "attention": "MultiHeadSelfAttention|DistilBert(Self|Sdpa|Flash)Attention2?",
        "ffn": "FFN",
    },
    buffers=(POSITION_IDS,),
)
