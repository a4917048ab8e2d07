"""Text classifiers of transformers end to end: an encoder and its head for whole texts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.encoders import blocks
from converters.encoders.assembly import FAMILIES, assemble
from converters.encoders.blocks import Group
from converters.encoders.family import EncoderConfig
from converters.errors import (
    MismatchError,
    UnsupportedArchitectureError,
    first_names,
    safe_repr,
)
from converters.families.names import NameRule, assign, refuse_mismatch
from converters.model import Model, NetworkConfig, Params, param_shapes
from converters.weights import single_precision

_ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}
# Of all encoders but GPT-2's.
_WORDS, _GPT2_WORDS = "encoder.embeddings.word_embeddings.embedding", "encoder.wte.embedding"
_MOST_CLASSES = 10_000


@dataclass(frozen=True)
class Head:
    """The layers between an encoder's states and the logits.

    Attributes:
      encoder: the model_type it stands on.
      last: torch's name of the layer that gives the logits.
      hidden: of the layer before it; empty for none.
      activation: after the hidden layer, a key of `_ACTIVATIONS`.
      of_last_token: whether it reads the last token's state; else the first's.
      bias: whether the last layer has one.
    """

    encoder: str
    last: str
    hidden: str = ""
    activation: str = ""
    of_last_token: bool = False
    bias: bool = True

    @property
    def rules(self) -> tuple[NameRule, ...]:
        """torch name -> Flax path of its tensors."""
        places = [(self.hidden, "hidden")] if self.hidden else []
        kinds = {"weight": ("kernel", "linear"), "bias": ("bias", "vector")}
        return tuple(
            NameRule(re.escape(f"{name}.{leaf}"), f"{place}.{kind}", layout)
            for name, place in [*places, (self.last, "last")]
            for leaf, (kind, layout) in kinds.items()
        )

    @property
    def tensors(self) -> tuple[str, ...]:
        """torch names of all of them."""
        hidden = [f"{self.hidden}.weight", f"{self.hidden}.bias"] if self.hidden else []
        return (*hidden, f"{self.last}.weight", *([f"{self.last}.bias"] if self.bias else []))


HEADS = {
    "BertForSequenceClassification": Head("bert", "classifier", "bert.pooler.dense", "tanh"),
    "DistilBertForSequenceClassification": Head(
        "distilbert", "classifier", "pre_classifier", "relu"
    ),
    "GPT2ForSequenceClassification": Head("gpt2", "score", of_last_token=True, bias=False),
    "MPNetForSequenceClassification": Head(
        "mpnet", "classifier.out_proj", "classifier.dense", "tanh"
    ),
    "RobertaForSequenceClassification": Head(
        "roberta", "classifier.out_proj", "classifier.dense", "tanh"
    ),
}
"""Class in transformers -> its head: the text classifiers that are converted."""


@dataclass(frozen=True)
class HeadConfig:
    """Static description of a head alone."""

    head: Head
    width: int
    num_classes: int

    def build(self, rngs: Any) -> nnx.Module:
        """The head's layers."""
        last = nnx.Linear(self.width, self.num_classes, use_bias=self.head.bias, rngs=rngs)
        if not self.head.hidden:
            return Group(last=last)
        return Group(hidden=blocks.linear(self.width, self.width, rngs), last=last)


@dataclass(frozen=True)
class TextClassifierConfig(NetworkConfig):
    """Static description of a text classifier; its inputs are tokens.

    Inputs are int32 `[n, 2, t]`: ids, and the mask that is 1 for tokens and 0 for the padding
    after them.

    Attributes:
      encoder: what makes the states.
      head: what makes logits of them.
      num_classes: number of logits.
      padding: id that is never taken for the last token, wherever it stands; None for no such id.
    """

    last_path = "head.last"
    input_kind = "tokens"
    channels = 0
    input_size = 0
    encoder: EncoderConfig
    head: Head
    num_classes: int
    padding: int | None = None

    @property
    def word_table(self) -> str:
        """Path of the parameter with a row for each token id."""
        return _GPT2_WORDS if self.head.encoder == "gpt2" else _WORDS

    def build(self, rngs: Any) -> nnx.Module:
        """The whole network."""
        return _Network(self, rngs)


class _Network(nnx.Module):
    def __init__(self, config: TextClassifierConfig, rngs: Any):
        self.config = config
        self.encoder = config.encoder.build(rngs)
        self.head = HeadConfig(config.head, config.encoder.width, config.num_classes).build(rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        encoder, head, how = self.encoder, self.head, self.config.head
        ids, mask = tokens[:, 0], tokens[:, 1]
        states = encoder(ids, mask)  # pyright: ignore[reportCallIssue]
        place = self._last(ids, mask) if how.of_last_token else 0 * mask[:, 0]
        state = jnp.take_along_axis(states, place[:, None, None], axis=1)[:, 0]
        if how.hidden:
            state = _ACTIVATIONS[how.activation](head.hidden(state))  # pyright: ignore
        return head.last(state)  # pyright: ignore[reportAttributeAccessIssue]

    def _last(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        """Place of the last token `[n]`, 0 where a text has none."""
        counts = mask > 0
        if self.config.padding is not None:
            counts &= ids != self.config.padding
        return (jnp.arange(ids.shape[1]) * counts).argmax(axis=1)


def head_of(config: Mapping[str, Any]) -> Head | None:
    """The head that a `config.json` names; None where it names no text classifier."""
    said = config.get("architectures")
    name = said[0] if isinstance(said, list) and len(said) == 1 else None
    return HEADS.get(name) if isinstance(name, str) else None


def classifier_model(
    values: Mapping[str, Any], tensors: Mapping[str, np.ndarray], where: str
) -> Model:
    """The text classifier that a configuration describes, float32.

    Args:
      values: of `config.json`, with a text classifier's `architectures`.
      tensors: torch name -> array.
      where: name of the source, for messages.

    Raises:
      UnsupportedArchitectureError: another network, or one without classes to choose from.
      MismatchError: weights and configuration do not fit each other.
      ConversionError: a value is wrong: NaN, infinite, not a number of the right kind.
    """
    head = head_of(values)
    if head is None or values.get("model_type") != head.encoder:
        wanted = ", ".join(f"{name} of {one.encoder!r}" for name, one in HEADS.items())
        raise UnsupportedArchitectureError(
            f"{where} says architectures {first_names(values.get('architectures'))} of model_type"
            f" {safe_repr(values.get('model_type'))}; expected one of {wanted}"
        )
    layers = tuple(f"{name}." for name in (head.hidden, head.last) if name)
    own = {name: tensor for name, tensor in tensors.items() if name.startswith(layers)}
    encoder = assemble(values, {n: t for n, t in tensors.items() if n not in own}, where, "")
    _refuse_others(tensors, own, encoder.architecture)
    refuse_mismatch([name for name in head.tensors if name not in own], [], [])
    classes = _classes(values, own, head, where)
    shapes = param_shapes(HeadConfig(head, encoder.width, classes))
    filled = single_precision(assign(head.rules, (), own, shapes))
    params: Params = {f"encoder.{path}": value for path, value in encoder.params.items()}
    params |= {f"head.{path}": jnp.asarray(value) for path, value in filled.items()}
    padding = _padding(values, encoder.vocab_size, where) if head.of_last_token else None
    config = TextClassifierConfig(encoder.config, head, classes, padding)
    return Model(config, params, f"{encoder.architecture} classifier", ())


def _padding(values: Mapping[str, Any], vocab_size: int, where: str) -> int | None:
    """The id that transformers skips when it looks for a text's last token."""
    padding = values.get("pad_token_id")
    if padding is not None and type(padding) is not int:
        raise MismatchError(
            f"{where}: pad_token_id is {safe_repr(padding)}, expected a whole number or null"
        )
    # An id that no text has is never skipped.
    return padding if padding is not None and 0 <= padding < vocab_size else None


def _refuse_others(
    tensors: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray], kind: str
) -> None:
    """Raise MismatchError where tensors are left that neither encoder nor head takes."""
    family = FAMILIES[kind]
    heads = [n for n in tensors if any(re.fullmatch(pattern, n) for pattern in family.heads)]
    poolers = [n for n in tensors if ".pooler." in f".{n}"]
    unused = [f"{n} {tensors[n].shape}" for n in dict.fromkeys((*heads, *poolers)) if n not in own]
    refuse_mismatch([], unused, [])


def _classes(
    values: Mapping[str, Any], own: Mapping[str, np.ndarray], head: Head, where: str
) -> int:
    """How many classes the head tells apart; raises where the config says otherwise."""
    if values.get("problem_type") in ("regression", "multi_label_classification"):
        raise UnsupportedArchitectureError(
            f"{where}: problem_type is {safe_repr(values['problem_type'])}, expected a network that"
            " chooses one of its classes"
        )
    weight = own.get(f"{head.last}.weight")
    rows = len(weight) if weight is not None and weight.ndim == 2 else 0
    labels = values.get("id2label")
    said = len(labels) if isinstance(labels, dict) else rows
    if rows != said or not 2 <= rows <= _MOST_CLASSES:
        raise MismatchError(
            f"{where} names {said} classes and {head.last}.weight has {rows} rows, expected as"
            f" many, from 2 to {_MOST_CLASSES}"
        )
    return rows
