"""Sentence vectors as the official rounds compute them, in few compiled programs.

Procedure of trojai-example (Rounds 5 and 6): tokens cut to the encoder's length less two; the last
hidden state at the first token (BERT, DistilBERT) or at the last one that is no padding (GPT-2).
Encoders of the sentence-transformers package mostly take the mean over all tokens.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.encoders import Encoder, encode
from converters.encoders.tokenizer import Tokenizer
from converters.errors import ConverterError
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.poolings import Pooling

# A program per length would compile too often, one for all lengths would compute padding.
_STEPS = ((64, 8), (128, 16), (256, 32), (2**31, 128))


def embed(
    encoder: Encoder,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pooling: Pooling,
    batch_size: int = 32,
) -> np.ndarray:
    """Sentence vectors float32 `[n, d]` of texts, in their order.

    Texts of similar length share a batch; a text's vector is the same in any company up to
    rounding.

    Args:
      encoder: from `converters.encoders.load_encoder`.
      tokenizer: the encoder's own.
      texts: any number of them.
      pooling: one of `jaxtroj.poolings.POOLINGS`.
      batch_size: texts per program call, at least 1.

    Raises:
      ExamplesError: a text cannot be tokenised or has no tokens, or the tokenizer does not belong
        to the encoder.
      EvidenceError: a vector is NaN or infinite.
    """
    rows = _tokens(encoder, tokenizer, texts)
    vectors = np.zeros((len(rows), encoder.width), np.float32)
    for chosen, tokens in batches([len(row) for row in rows], batch_size, encoder.max_tokens):
        # Rows that fill up the last batch are one token long: they see themselves, nothing is NaN.
        size = batch_size if len(chosen) == batch_size else _power_of_two(len(chosen))
        ids = np.full((size, tokens), tokenizer.pad_id, np.int32)
        lengths = np.ones(size, np.int32)
        for place, number in enumerate(chosen):
            ids[place, : len(rows[number])] = rows[number]
            lengths[place] = len(rows[number])
        found = _vectors(encoder.config, pooling, encoder.params, ids, lengths)
        vectors[chosen] = np.asarray(found, np.float32)[: len(chosen)]
    if not np.isfinite(vectors).all():
        number = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise EvidenceError(
            f"the sentence vector of text {number} is not finite; the encoder's weights are too "
            "large: use the encoder that was published with the round"
        )
    return vectors


@partial(jax.jit, static_argnums=(0, 1))
def _vectors(config, pooling: Pooling, params, ids, lengths):
    mask = (jnp.arange(ids.shape[1])[None, :] < lengths[:, None]).astype(jnp.int32)
    states = encode(config, params, ids, mask)
    if pooling == "first":
        return states[:, 0]
    if pooling == "mean":
        return (states * mask[:, :, None]).sum(axis=1) / lengths[:, None]
    return jnp.take_along_axis(states, (lengths - 1)[:, None, None], axis=1)[:, 0]


def batches(
    lengths: Sequence[int], batch_size: int, max_tokens: int
) -> Iterator[tuple[list[int], int]]:
    """Numbers of the texts of each batch and the length it is padded to, longest texts first.

    All batches but the last hold `batch_size` texts, so there are hardly more programs than
    lengths to pad to.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1")
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        yield chosen, min(padded_length(lengths[chosen[0]]), max_tokens)


def padded_length(tokens: int) -> int:
    """The smallest length that batches are padded to and that holds `tokens`.

    >>> [padded_length(n) for n in (1, 9, 64, 65, 130, 300)]
    [8, 16, 64, 80, 160, 384]
    """
    step = next(step for most, step in _STEPS if tokens <= most)
    return -(-tokens // step) * step


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _tokens(encoder: Encoder, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, checked against the encoder."""
    try:
        rows = tokenizer.rows(texts, max(1, encoder.max_tokens - 2))
    except ConverterError as error:
        raise ExamplesError(str(error)) from error
    for number, row in enumerate(rows):
        if not row:
            raise ExamplesError(
                f"text {number} has no tokens, so this encoder gives it no vector; leave it out"
            )
        if not 0 <= min(row) <= max(row) < encoder.vocab_size:
            raise ExamplesError(
                f"text {number} has token ids up to {max(row)}, the encoder knows "
                f"{encoder.vocab_size}; use the tokenizer that belongs to the encoder"
            )
    return rows
