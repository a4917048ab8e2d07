"""Candidate texts of a bank that owes nothing to any trigger list.

Words and characters are the encoder's own vocabulary; phrases are drawn from its words, and
harmless sentences come from texts that the caller gives. A known-list bank is made of the caller's
list alone and says so.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import UsageError
from jaxtroj.text.insertion import sentences

KINDS = ("character", "word", "phrase", "sentence", "listed")
_WORD = re.compile(r"[a-z]{3,24}")
_PHRASE_WORDS = (3, 7)
_SENTENCE_WORDS = (3, 14)
LONGEST = 2000


@dataclass(frozen=True)
class Candidate:
    """A text to insert and its kind, one of `KINDS`."""

    text: str
    kind: str


def list_free(
    vocabulary: Iterable[str],
    words: int | None,
    phrases: int,
    texts: Sequence[str] = (),
    taken: int = 0,
    seed: int = 0,
) -> list[Candidate]:
    """Characters, words and phrases of a vocabulary, and sentences of texts.

    Args:
      vocabulary: tokens of the encoder; pieces of words are left out.
      words: how many words, drawn at random; None takes all.
      phrases: how many phrases of 3 to 7 random words.
      texts: clean texts to take sentences from.
      taken: how many sentences.
      seed: of the draws; each is keyed by it and its own number.
    """
    plain = sorted({_plain(token) for token in vocabulary} - {""})
    characters = [token for token in plain if len(token) == 1 and not token.isalnum()]
    known = [token for token in plain if _WORD.fullmatch(token)]
    if len(known) < _PHRASE_WORDS[1]:
        raise UsageError(
            f"the tokenizer's vocabulary has {len(known)} whole words, expected thousands; is it "
            "the encoder's own?"
        )
    chosen = known
    if words is not None and words < len(known):
        order = np.random.default_rng([seed, 0]).permutation(len(known))
        chosen = [known[place] for place in sorted(order[:words])]
    found = [Candidate(token, "character") for token in characters if token.isascii()]
    found += [Candidate(word, "word") for word in chosen]
    found += [Candidate(_phrase(known, seed, n), "phrase") for n in range(phrases)]
    return found + [Candidate(s, "sentence") for s in _sentences(texts, taken, seed)]


def known_list(texts: Iterable[str]) -> list[Candidate]:
    """The caller's own list, each text once, in its order.

    Raises:
      UsageError: a text is empty or longer than `LONGEST` characters, or there is none.
    """
    unique = list(dict.fromkeys(texts))
    odd = [text for text in unique if not text.strip() or len(text) > LONGEST]
    if odd or not unique:
        raise UsageError(
            f"a candidate list needs texts of 1 to {LONGEST} characters, got "
            f"{len(unique)} of which {len(odd)} are empty or longer"
        )
    return [Candidate(text, "listed") for text in unique]


def _plain(token: str) -> str:
    """A token without the mark of a word's start (GPT-2's Ġ); pieces and special tokens give ""."""
    if token.startswith("##") or (token[:1] in "<[" and len(token) > 1):
        return ""
    return token.removeprefix("Ġ")


def _phrase(words: Sequence[str], seed: int, number: int) -> str:
    draw = np.random.default_rng([seed, 1, number])
    low, high = _PHRASE_WORDS
    chosen = draw.choice(len(words), draw.integers(low, high + 1), replace=False)
    return " ".join(words[place] for place in chosen) + "."


def _sentences(texts: Sequence[str], count: int, seed: int) -> list[str]:
    low, high = _SENTENCE_WORDS
    parts = {part for text in texts for part in sentences(text)}
    fitting = sorted(part for part in parts if low <= len(part.split()) <= high)
    order = np.random.default_rng([seed, 2]).permutation(len(fitting))
    return [fitting[place] for place in sorted(order[:count])]
