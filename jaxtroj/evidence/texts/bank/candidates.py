"""Candidate texts of a bank that owes nothing to any trigger list.

Words and characters are the encoder's own vocabulary; phrases are drawn from its words, and
harmless sentences come from texts that the caller gives. A known-list bank is made of the caller's
list alone and says so.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converters.errors import safe_repr
from jaxtroj.errors import UsageError
from jaxtroj.evidence.texts.insertion import sentences
from jaxtroj.evidence.texts.labelled_texts import is_unicode, read_lines_or_json

KINDS = ("character", "word", "phrase", "sentence", "listed")
_WORD = re.compile(r"[a-z]{3,24}")
_PHRASE_WORDS = (3, 7)
_SENTENCE_WORDS = (3, 14)
LONGEST = 2000


@dataclass(frozen=True)
class BankText:
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
) -> list[BankText]:
    """Characters, words and phrases of a vocabulary, and sentences of texts.

    Args:
      vocabulary: tokens of the encoder; pieces of words are left out.
      words: how many words, drawn at random; None takes all.
      phrases: how many phrases of 3 to 7 random words.
      texts: clean texts to take sentences from.
      taken: how many sentences.
      seed: of the draws; each is keyed by it and its own number.
    """
    plain = whole_tokens(vocabulary)
    characters = [token for token in plain if len(token) == 1 and not token.isalnum()]
    known = [token for token in plain if _WORD.fullmatch(token)]
    if len(known) < _PHRASE_WORDS[1]:
        raise UsageError(
            f"the tokenizer's vocabulary has {len(known)} whole words of small Latin letters, of"
            " which banks are made; expected thousands: use the encoder's own tokenizer (networks"
            " of other scripts cannot be searched so yet)"
        )
    chosen = known
    if words is not None and words < len(known):
        order = np.random.default_rng([seed, 0]).permutation(len(known))
        chosen = [known[place] for place in sorted(order[:words])]
    found = [BankText(token, "character") for token in characters if token.isascii()]
    found += [BankText(word, "word") for word in chosen]
    found += [BankText(_phrase(known, seed, n), "phrase") for n in range(phrases)]
    return found + [BankText(s, "sentence") for s in _sentences(texts, taken, seed)]


def known_list(texts: Iterable[str]) -> list[BankText]:
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
    return [BankText(text, "listed") for text in unique]


def read_list(path: Path) -> list[str]:
    """Texts of a list: a JSON list, an object of lists as NIST's trigger files, or plain lines.

    Raises:
      DatasetError: the file cannot be read.
      UsageError: it holds something else.
    """
    found = read_lines_or_json(path)
    parts = list(found.values()) if isinstance(found, dict) else [found]
    texts = [text for part in parts if isinstance(part, list) for text in part]
    if not all(isinstance(part, list) for part in parts) or not all(map(_is_text, texts)):
        raise UsageError(
            f"{path} holds {safe_repr(found)}, expected texts, as a list, an object of lists, or "
            "lines"
        )
    return [text for text in texts if text.strip()]


def whole_tokens(vocabulary: Iterable[str]) -> list[str]:
    """Whole words and characters of a vocabulary, sorted; pieces and special tokens left out.

    >>> whole_tokens(["[CLS]", "good", "##ness", "!"]), whole_tokens(["\u0120good", "ness", "!"])
    (['!', 'good'], ['!', 'good'])
    """
    tokens = set(vocabulary)
    # GPT-2 marks the start of a word, so what is unmarked goes on with one; BERT marks the rest.
    marked = {token[1:] for token in tokens if token.startswith("\u0120")}
    plain = marked | {token for token in tokens if len(token) == 1} if marked else tokens
    special = {token for token in plain if token[:1] in ("<", "[") and len(token) > 1}
    return sorted(token for token in plain - special if token and not token.startswith("##"))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_unicode(value)


def _phrase(words: Sequence[str], seed: int, number: int) -> str:
    draw = np.random.default_rng([seed, 1, number])
    low, high = _PHRASE_WORDS
    size = int(draw.integers(low, high + 1))
    chosen = draw.choice(len(words), size, replace=False)
    return " ".join(words[int(place)] for place in chosen) + "."


def _sentences(texts: Sequence[str], count: int, seed: int) -> list[str]:
    low, high = _SENTENCE_WORDS
    parts = {part for text in texts for part in sentences(text)}
    fitting = sorted(part for part in parts if low <= len(part.split()) <= high)
    order = np.random.default_rng([seed, 2]).permutation(len(fitting))
    return [fitting[place] for place in sorted(order[:count])]
