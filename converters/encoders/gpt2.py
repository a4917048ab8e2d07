"""GPT-2 without its language head: layer norms before each part, tokens see only earlier ones.

Reference:
  Radford et al., Language Models are Unsupervised Multitask Learners, OpenAI, 2019.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.encoders import blocks
from converters.encoders.blocks import Group
from converters.encoders.family import Buffer, EncoderConfig, EncoderFamily
from converters.encoders.fields import MAX_LAYERS, Fields
from converters.families.names import NameRule
from converters.hub.aliases import own_names

# transformers' other names of entries of its configuration.
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
_DENSE = r"h\.\d+\.(?:attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)"
TABLE = (
    *blocks.embedding_rules("wte|wpe"),
    *blocks.norm_rules(r"h\.\d+\.ln_[12]|ln_f"),
    # GPT-2's Conv1D stores [in, out], which is Flax's layout already.
    NameRule(rf"({_DENSE})\.weight", r"\1.kernel", "table"),
    NameRule(rf"({_DENSE})\.bias", r"\1.bias", "vector"),
)


@dataclass(frozen=True)
class GPT2Config(EncoderConfig):
    """Static description of a GPT-2 encoder."""

    def build(self, rngs) -> "GPT2":
        return GPT2(self, rngs)


class GPT2(nnx.Module):
    """GPT-2's hidden states after the last norm."""

    def __init__(self, config: GPT2Config, rngs):
        self.config = config
        width = config.width
        self.wte = blocks.EmbeddingTable(config.vocab_size, width, rngs)
        self.wpe = blocks.EmbeddingTable(config.positions, width, rngs)
        self.h = nnx.List([_layer(config, rngs) for _ in range(config.layers)])
        self.ln_f = blocks.norm(width, config.eps, rngs)

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        tokens = ids.shape[1]
        x = self.wte(ids) + self.wpe.embedding[:tokens]
        allowed = blocks.seen(mask) & jnp.tri(tokens, dtype=bool)
        activation = blocks.ACTIVATIONS[self.config.activation]
        for layer in self.h:
            query, key, value = jnp.split(layer.attn.c_attn(layer.ln_1(x)), 3, axis=-1)
            mixed = blocks.attention(query, key, value, self.config.heads, allowed)
            x = x + layer.attn.c_proj(mixed)
            x = x + layer.mlp.c_proj(activation(layer.mlp.c_fc(layer.ln_2(x))))
        return self.ln_f(x)


def _layer(config: GPT2Config, rngs) -> Group:
    width, inner = config.width, config.inner
    return Group(
        ln_1=blocks.norm(width, config.eps, rngs),
        attn=Group(
            c_attn=blocks.linear(width, 3 * width, rngs),
            c_proj=blocks.linear(width, width, rngs),
        ),
        ln_2=blocks.norm(width, config.eps, rngs),
        mlp=Group(
            c_fc=blocks.linear(width, inner, rngs),
            c_proj=blocks.linear(inner, width, rngs),
        ),
    )


def configure(values: Mapping, where: str) -> GPT2Config:
    """See `EncoderFamily.configure`."""
    fields = Fields(own_names(values, ALIASES, where), where)
    fields.only("scale_attn_weights", True)
    fields.only("scale_attn_by_inverse_layer_idx", False)
    fields.only("add_cross_attention", False)
    width = fields.whole("n_embd", 768)
    return GPT2Config(
        vocab_size=fields.whole("vocab_size", 50257),
        width=width,
        layers=fields.whole("n_layer", 12, MAX_LAYERS),
        heads=fields.heads("n_head", 12, width),
        inner=fields.whole("n_inner", 4 * width),
        positions=fields.whole("n_positions", 1024),
        activation=fields.activation("activation_function", "gelu_new"),
        eps=fields.eps("layer_norm_epsilon", 1e-5),
    )


FAMILY = EncoderFamily(
    configure=configure,
    prefix="transformer",
    table=TABLE,
    # Causal masks that older versions keep as buffers.
    ignored=(r"h\.\d+\.attn\.(?:masked_)?bias",),
    heads=(r"lm_head\..*", r"multiple_choice_head\..*", r"score\..*", r"classifier\..*"),
    classes={
        "": "GPT2Model",
        "h.#": "(GPT2)?Block",
        "attn": "(GPT2(Sdpa|Flash)?)?Attention2?",
        "mlp": "(GPT2)?MLP",
    },
    buffers=(
        Buffer(
            r"h\.\d+\.attn\.bias",
            2,
            lambda shape: np.tri(shape[-1])[None, None],
            "ones for earlier tokens, zeros for later ones",
        ),
        Buffer(r"h\.\d+\.attn\.masked_bias", 0, lambda _: np.array(-1e4), "-10000"),
    ),
    causal=True,
)
