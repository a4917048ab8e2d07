"""From the tensors and the configuration of a file to an `Encoder`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from converters.encoders import bert, distilbert, gpt2, mpnet, roberta
from converters.encoders.family import EncoderConfig, EncoderFamily
from converters.encoders.fields import Fields
from converters.errors import (
    MismatchError,
    UnsupportedArchitectureError,
    safe_repr,
)
from converters.families.names import assign
from converters.model import Params, cast, module_of, param_shapes
from converters.weights import single_precision

# Hugging Face's model_type -> family.
FAMILIES: dict[str, EncoderFamily] = {
    "bert": bert.FAMILY,
    "distilbert": distilbert.FAMILY,
    "gpt2": gpt2.FAMILY,
    "mpnet": mpnet.FAMILY,
    "roberta": roberta.FAMILY,
}
# The largest supported encoder, of MAX_LAYERS layers, has 16 tensors per layer.
MAX_TENSORS = 10_000


def encode(config, params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Last hidden state; pure, `config` is static under jit.

    Args:
      config: of one of the families.
      params: Flax path -> array.
      ids: token ids `[n, t]`, each below the size of the vocabulary.
      mask: `[n, t]`, 1 for tokens and 0 for padding.

    Returns:
      `[n, t, d]`, of the parameters' type; values at padding mean nothing.
    """
    return module_of(config, params)(ids, mask)


_jitted_encode = jax.jit(encode, static_argnums=0)


@dataclass(frozen=True)
class Encoder:
    """A text encoder ready to run.

    Attributes:
      config: hashable description of the architecture, a static jit argument.
      params: Flax path -> array, traced.
      architecture: a key of `FAMILIES`.
      max_tokens: longest input, special tokens included.
      findings: what was noticed while reading and converting.
      sha256: digest of the weights as they were read; the encoder's identity.
    """

    config: EncoderConfig
    params: Params
    architecture: str
    max_tokens: int
    findings: tuple[str, ...] = ()
    sha256: str = ""

    @property
    def width(self) -> int:
        """Length of one hidden state."""
        return self.config.width

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self.config.vocab_size

    def __call__(self, ids, mask) -> jax.Array:
        """Last hidden state `[n, t, d]` of token ids and mask `[n, t]`; see `encode`.

        Raises:
          ValueError: shapes differ, too many tokens, or ids outside the vocabulary.
        """
        ids, mask = np.asarray(ids), np.asarray(mask)
        if ids.ndim != 2 or ids.shape != mask.shape or ids.size == 0:
            raise ValueError(f"got ids {ids.shape} and mask {mask.shape}, expected two [n, t]")
        if ids.shape[1] > self.max_tokens:
            raise ValueError(f"got {ids.shape[1]} tokens, expected at most {self.max_tokens}")
        least, most = int(ids.min()), int(ids.max())
        if least < 0 or most >= self.vocab_size:
            raise ValueError(
                f"got token ids from {least} to {most}, expected 0 to {self.vocab_size - 1}; "
                "use the tokenizer that belongs to this encoder"
            )
        return _jitted_encode(self.config, self.params, ids.astype(np.int32), mask)

    def astype(self, dtype) -> "Encoder":
        """The same encoder with parameters of another floating type."""
        return replace(self, params=cast(self.params, dtype))


def assemble(
    values: Mapping,
    tensors: Mapping[str, np.ndarray],
    where: str,
    sha256: str,
    findings: Sequence[str] = (),
) -> Encoder:
    """The encoder that a configuration describes, float32, with the weights of a file.

    Args:
      values: the configuration, with `model_type`.
      tensors: torch name -> array.
      where: name of the source, for messages.
      sha256: digest of the weights.
      findings: of reading.

    Raises:
      UnsupportedArchitectureError: another model, or a variant that is not supported.
      MismatchError: weights and configuration differ, all differences listed.
      ConversionError: a value is wrong: NaN, infinite, not a number of the right kind.
    """
    kind = values.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or not isinstance(kind, str):
        raise UnsupportedArchitectureError(
            f"{where}: model_type is {safe_repr(kind)}, expected one of {', '.join(FAMILIES)}"
        )
    if len(tensors) > MAX_TENSORS:
        raise UnsupportedArchitectureError(
            f"{where} holds {len(tensors)} tensors, expected at most {MAX_TENSORS}"
        )
    fields = Fields(values, where)
    # Both change what transformers computes: which entry it reads for which, and who sees whom.
    fields.only("attribute_map", None)
    fields.only("is_causal", family.causal)
    config = family.configure(values, where)
    tensors, left_out = base_tensors(family, tensors)
    _refuse_buffers(family, tensors, config.positions)
    filled = assign(family.table, family.ignored, tensors, param_shapes(config))
    params = {path: jnp.asarray(value) for path, value in single_precision(filled).items()}
    notes = (*findings, *left_out)
    return Encoder(config, params, kind, config.max_tokens, notes, sha256)


def base_tensors(
    family: EncoderFamily, tensors: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Tensors of the encoder itself, under its own names, and a finding on those left out.

    A model with a head has the encoder's tensors under a prefix and the head's beside it.
    """
    prefix = f"{family.prefix}."
    # Only what makes a known name counts as the prefix: a head may be called like the encoder.
    prefixed = any(name.startswith(prefix) and _known(family, name, prefix) for name in tensors)
    kept: dict[str, np.ndarray] = {}
    heads: list[str] = []
    for name, tensor in tensors.items():
        if any(re.fullmatch(pattern, name) for pattern in family.heads):
            heads.append(name)
            continue
        bare = name.removeprefix(prefix) if prefixed else name
        if bare in kept:
            raise MismatchError(
                f"{bare} is there with and without the prefix {prefix!r}; expected one"
            )
        kept[bare] = tensor
    heads += [n for n in kept if any(re.fullmatch(pattern, n) for pattern in family.ignored)]
    if not heads:
        return kept, []
    named = ", ".join(safe_repr(name) for name in heads[:6])
    return kept, [
        f"left out {len(heads)} tensors that the last hidden state does not need: {named}"
        f"{' ...' if len(heads) > 6 else ''}"
    ]


def _refuse_buffers(
    family: EncoderFamily, tensors: Mapping[str, np.ndarray], positions: int
) -> None:
    """Raise MismatchError where a buffer is none that the family's code makes.

    Networks compute with them where a file has them; newer versions of transformers make their own.
    """
    faults = [
        f"{name} is {tensor.dtype} {tensor.shape} of other values, expected {buffer.said} for at "
        f"least {positions} positions"
        for name, tensor in tensors.items()
        for buffer in family.buffers
        if re.fullmatch(buffer.pattern, name) and not buffer.holds(tensor, positions)
    ]
    if faults:
        raise MismatchError(
            f"{'; '.join(faults[:5])}{' ...' if len(faults) > 5 else ''}. Versions of transformers "
            "compute otherwise with it: load the encoder's weights into a new one and save that"
        )


def _known(family: EncoderFamily, name: str, prefix: str) -> bool:
    bare = name.removeprefix(prefix)
    return any(re.fullmatch(rule.pattern, bare) for rule in family.table)
