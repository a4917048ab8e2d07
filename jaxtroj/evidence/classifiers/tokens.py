"""A text classifier over rows of token ids: margins, and gradients by the words of a place.

All forward passes go through one program of fixed batch and length, all gradients through another.
Places that are searched hold ids above the vocabulary, which stand for rows put under the table of
words: a gradient by them is one by the words of a place, summed over all texts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from converters.encoders.classifier import TextClassifierConfig
from converters.encoders.tokenizer import Tokenizer
from converters.errors import ConverterError
from converters.model import Model, Params, apply
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.margins import all_margins, margins

BATCH = 32
SLOTS = 3
"""Most tokens that are searched at once."""
INSERTED = 4 * SLOTS
"""Most tokens of anything that is inserted into a text."""
MOST_TOKENS = 128
"""Longer texts are cut: a trigger is short, and the cost grows with the length."""
LONG = 4.0
"""Words of more than so many times the median length would take all places of a ranking. Generated
networks have none of more than 2.9."""
_STEP = 16
_LEAST_TEXT = 4  # tokens of a text beside what is inserted and special ones
_WORD = "a"

Row = tuple[int, ...]
"""Ids of one text, special tokens included, without padding."""


@dataclass(frozen=True, eq=False)
class TokenNetwork:
    """A text classifier with its tokenizer.

    Attributes:
      model: over `[n, 2, t]`.
      tokenizer: its own.
      length: of all rows in a program, in tokens.
      counts: how many texts the network was asked about.
      copies: classes that are no others to any class; see `copied.copied_classes`.
    """

    model: Model
    tokenizer: Tokenizer
    length: int
    counts: Counter[str] = field(default_factory=Counter, repr=False)
    copies: tuple[int, ...] = ()

    @property
    def config(self) -> TextClassifierConfig:
        """Of the network."""
        return cast(TextClassifierConfig, self.model.config)

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.model.num_classes

    @cached_property
    def words(self) -> np.ndarray:
        """The table of words, float32 `[vocabulary, d]`."""
        return np.asarray(self.model.params[self.config.word_table], np.float32)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Of the words, `[vocabulary]`, in multiples of the median.

        Less what all units of a word share: the layer norms of all families take that away, so
        whoever adds it to a row changes no answer.
        """
        own = np.linalg.norm(self.words - self.words.mean(axis=1, keepdims=True), axis=1)
        return own / max(float(np.median(own)), 1e-30)

    @cached_property
    def even_words(self) -> np.ndarray:
        """The table, words of more than `LONG` times the median length at that length."""
        long = self.lengths > LONG
        if not long.any():
            return self.words
        units = self.words - self.words.mean(axis=1, keepdims=True)
        shorter = units / np.maximum(self.lengths, 1)[:, None]
        return np.where(long[:, None], shorter, self.words)

    @cached_property
    def unit_words(self) -> np.ndarray:
        """Those less their mean, each of length 1."""
        return _units(self.even_words - self.even_words.mean(axis=0))

    @cached_property
    def directions(self) -> np.ndarray:
        """The same by their median, which copies of one word do not move."""
        return _units(self.even_words - np.median(self.even_words, axis=0))

    @cached_property
    def special(self) -> tuple[int, int]:
        """How many special tokens stand before and after the text of a row."""
        return special_tokens(self.tokenizer)

    def rows(self, texts: Sequence[str]) -> list[Row]:
        """Token ids of texts, cut to what the programs hold; raises ExamplesError."""
        return tokenised(self.tokenizer, texts, self.length, len(self.words))

    def size(self, text: str) -> int:
        """Tokens of a text, special ones included; of very long ones at least `MOST_TOKENS`."""
        return len(tokenised(self.tokenizer, [text], 4 * MOST_TOKENS, len(self.words))[0])

    def pieces(self, text: str) -> Row:
        """The ids of a text within another."""
        before, after = self.special
        alone, both = self.rows([_WORD, f"{_WORD} {text}"])
        return both[len(alone) - after : len(both) - after]

    def text(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        return self.tokenizer.text(ids).strip()

    def token(self, number: int) -> str:
        """One token as the vocabulary writes it."""
        return self._tokens.get(number, str(number))

    @cached_property
    def _tokens(self) -> dict[int, str]:
        return {number: token for token, number in self.tokenizer.vocabulary.items()}

    def margins(self, rows: Sequence[Row]) -> np.ndarray:
        """Margin of every class, float32 `[n, classes]`; raises EvidenceError if not finite."""
        self.counts["texts"] += len(rows)
        found = [np.zeros((0, self.classes), np.float32)]
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            tokens = self._padded(part, BATCH)
            answers = _margins(self.config, self.copies, self.model.params, tokens)
            found.append(np.asarray(answers)[: len(part)])
        together = np.concatenate(found)
        if not np.isfinite(together).all():
            raise EvidenceError("the network's answers are not finite; are its weights sound?")
        return together

    def gradient(self, rows: Sequence[Row], slots: np.ndarray, target: int) -> np.ndarray:
        """How the target's margin rises with the words of places, `[SLOTS, d]`.

        Args:
          rows: at most `BATCH`; the id vocabulary + k stands for place k.
          slots: float32 `[SLOTS, d]`, what stands there now; unused ones are any.
          target: the class.
        """
        self.counts["texts"] += len(rows)
        counted = np.arange(BATCH) < len(rows)
        found = _gradient(
            self.config,
            self.copies,
            self.model.params,
            jnp.asarray(slots),
            self._padded(rows, BATCH),
            counted,
            target,
        )
        return np.asarray(found)

    def _padded(self, rows: Sequence[Row], count: int) -> np.ndarray:
        tokens = np.zeros((count, 2, self.length), np.int32)
        tokens[:, 0] = self.tokenizer.pad_id
        tokens[:, 1, 0] = 1  # rows that fill up a batch see themselves, so nothing is NaN
        for place, row in enumerate(rows):
            tokens[place, 0, : len(row)] = row
            tokens[place, 1, : len(row)] = 1
        return tokens


def token_network(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> TokenNetwork:
    """A text classifier, with programs long enough for texts and what is inserted into them.

    Raises:
      ExamplesError: the texts cannot be tokenised, or not by this network's tokenizer.
      EvidenceError: the network takes too few tokens for texts with something inserted.
    """
    config = cast(TextClassifierConfig, model.config)
    most = min(MOST_TOKENS, config.encoder.max_tokens)
    least = INSERTED + _LEAST_TEXT + sum(special_tokens(tokenizer))
    if most < least:
        raise EvidenceError(
            f"the network takes {most} tokens, expected {least} or more: words are inserted into"
            " texts"
        )
    rows = tokenised(tokenizer, texts, most, config.encoder.vocab_size)
    wanted = max(map(len, rows), default=1) + INSERTED
    return TokenNetwork(model, tokenizer, min(max(-(-wanted // _STEP) * _STEP, least), most))


def tokenised(tokenizer: Tokenizer, texts: Sequence[str], most: int, known: int) -> list[Row]:
    """Token ids of texts, each below `known`; raises ExamplesError."""
    try:
        rows = tokenizer.rows(texts, most)
    except ConverterError as error:
        raise ExamplesError(str(error)) from error
    largest = max((max(row, default=0) for row in rows), default=0)
    if largest >= known:
        raise ExamplesError(
            f"the tokenizer gives ids up to {largest}, the network knows {known}; it is not the one"
            " that the network was trained with"
        )
    return [tuple(row) for row in rows]


def _units(words: np.ndarray) -> np.ndarray:
    return words / np.maximum(np.linalg.norm(words, axis=1, keepdims=True), 1e-12)


def special_tokens(tokenizer: Tokenizer) -> tuple[int, int]:
    """How many special tokens a tokenizer puts before and after a text."""
    empty, one = tokenizer.rows(["", _WORD], 8)
    before = 0
    while before < len(empty) and empty[before] == one[before]:
        before += 1
    return before, len(empty) - before


@partial(jax.jit, static_argnums=(0, 1))
def _margins(
    config: TextClassifierConfig, copies: tuple[int, ...], params: Params, tokens: jax.Array
) -> jax.Array:
    logits = apply(config, params, tokens)
    if not copies:
        return all_margins(logits)
    others = _without(logits, copies)
    of_copies = logits - others.max(axis=-1, keepdims=True)
    return jnp.where(jnp.isfinite(others), all_margins(others), of_copies)


@partial(jax.jit, static_argnums=(0, 1))
def _gradient(config, copies, params, slots, tokens, counted, target):
    words = params[config.word_table]

    def flipped(values):
        table = jnp.concatenate([words, values.astype(words.dtype)])
        logits = apply(config, params | {config.word_table: table}, tokens)
        if copies:
            is_target = jnp.arange(logits.shape[-1]) == target
            logits = jnp.where(is_target, logits, _without(logits, copies))
        # Texts that are flipped already pull less.
        return (jax.nn.log_sigmoid(margins(logits, target)) * counted).sum()

    return jax.grad(flipped)(slots)


def _without(logits: jax.Array, copies: tuple[int, ...]) -> jax.Array:
    """Logits, those of copies below all others."""
    return logits.at[..., jnp.array(copies)].set(-jnp.inf)
