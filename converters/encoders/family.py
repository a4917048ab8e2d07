"""`EncoderFamily`: what a kind of text encoder consists of; `EncoderConfig`, what all have."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
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
class Buffer:
    """A tensor that the code makes and computes with, and that no training changes.

    Attributes:
      pattern: of its name.
      sides: how many axes are as long as the table of positions, or longer; as many of length 1 go
        before them.
      values: what it holds, by its shape.
      said: that in words, for messages.
    """

    pattern: str
    sides: int
    values: Callable[[tuple[int, ...]], np.ndarray]
    said: str

    def holds(self, tensor: np.ndarray, positions: int) -> bool:
        """Whether `tensor` is what the code makes, in any type."""
        length = tensor.shape[-1] if self.sides and tensor.ndim else positions
        shape = (1,) * self.sides + (length,) * self.sides
        if tensor.shape != shape or length < positions:
            return False
        return np.array_equal(tensor, self.values(shape).astype(tensor.dtype))


# A table of positions that is one row long would be stretched over all tokens.
POSITION_IDS = Buffer(
    r"embeddings\.position_ids", 1, lambda shape: np.arange(shape[1])[None], "0, 1, 2, ..."
)
TOKEN_TYPE_IDS = Buffer(r"embeddings\.token_type_ids", 1, np.zeros, "zeros")


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
      classes: name of a part of a pickled encoder -> pattern of its class in the family's own
        module; `#` stands for a number, no name for the encoder. Parts of torch's classes are
        known by their names in all families.
      buffers: those that the code computes with.
      causal: whether a token sees only those before it.
    """

    configure: Callable[[Mapping[str, Any], str], EncoderConfig]
    prefix: str
    table: tuple[NameRule, ...]
    ignored: tuple[str, ...]
    heads: tuple[str, ...]
    classes: Mapping[str, str]
    buffers: tuple[Buffer, ...] = ()
    causal: bool = False
