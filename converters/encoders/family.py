"""`EncoderFamily`: what a kind of text encoder consists of; `EncoderConfig`, what all have."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flax import nnx

from converters.families.names import NameRule


@dataclass(frozen=True)
class EncoderConfig(ABC):
    """Static description of a text encoder; hashable, so it is a jit argument.

    Attributes:
      vocab_size: number of token ids.
      width: length of one hidden state.
      layers, heads: number of layers, and of attention heads in each.
      inner: width between the two feed-forward layers.
      positions: rows of the table of positions.
      activation: a key of `blocks.ACTIVATIONS`.
      eps: what layer norms add to the variance.
    """

    vocab_size: int
    width: int
    layers: int
    heads: int
    inner: int
    positions: int
    activation: str
    eps: float

    @property
    def max_tokens(self) -> int:
        """Longest input."""
        return self.positions

    @abstractmethod
    def build(self, rngs: Any) -> nnx.Module:
        """A freshly initialised module of this shape."""


@dataclass(frozen=True)
class EncoderFamily:
    """A kind of text encoder.

    Attributes:
      configure: configuration out of a `config.json` or a pickled one, and the name of its source
        for messages; raises ConversionError, and UnsupportedArchitectureError for variants.
      prefix: where a model with a head keeps the encoder.
      table: torch name -> Flax path and layout of every tensor that counts.
      ignored: patterns of tensors that the last hidden state does not need.
      heads: patterns of the tensors of heads around the encoder.
      classes: pattern of class names in pickled encoders, beside torch's own.
    """

    configure: Callable[[Mapping[str, Any], str], EncoderConfig]
    prefix: str
    table: tuple[NameRule, ...]
    ignored: tuple[str, ...]
    heads: tuple[str, ...]
    classes: str
