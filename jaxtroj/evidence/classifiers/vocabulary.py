"""Which tokens typed texts hold: a search among others finds what nobody can type.

A vocabulary may name tokens that its tokenizer gives to no text, such as words in capitals where
all is made small. Their rows in the table of words change no answer, whatever they hold: forty
long ones in capitals took all places of a search, and a planted word was not found.
"""

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from converters.encoders.tokenizer import MAX_CHARACTERS, Tokenizer
from converters.errors import LoadError, first_names
from jaxtroj.evidence.classifiers.tokens import TokenNetwork, special_tokens
from jaxtroj.evidence.texts.labelled_texts import is_unicode

_PIECE = "##"  # before pieces within a word, of BERT's kind
_FEWEST_FREE = 8  # tokens; a smaller vocabulary is searched whole
_TOLD = 10.0  # multiples of the median length
_JOINS = 4  # words that a piece is put behind
_BRACKETS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ANGLES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_USUAL = {
    "GPT2Tokenizer": ("<|endoftext|>",),
    "MPNetTokenizer": (*_ANGLES, "[UNK]"),
    "RobertaTokenizer": _ANGLES,
}
_BEGINS_UNTYPED = ("[unused", "<|", "<extra")
# Bytes that GPT-2 writes as the characters of these numbers; the others it writes as others.
_SHOWN = (*range(33, 127), *range(161, 173), *range(174, 256))
_BYTES = {chr(one): one for one in _SHOWN}
_BYTES |= {chr(256 + n): one for n, one in enumerate(sorted({*range(256)} - {*_SHOWN}))}


def usual_special(tokenizer: Tokenizer) -> frozenset[str]:
    """The special tokens that all tokenizers of a class have."""
    return frozenset(_USUAL.get(type(tokenizer.backend).__name__, _BRACKETS))


def odd_words(network: TokenNetwork) -> tuple[str, ...]:
    """What is unusual about a vocabulary and its table, a sentence each."""
    declared = {str(token) for token in network.tokenizer.backend.all_special_tokens}
    odd = sorted(declared - usual_special(network.tokenizer))
    more = f" and {len(odd) - 3} more" if odd[3:] else ""
    named = f"the tokenizer declares {first_names(odd)}{more} special, beyond what its class does:"
    told = (f"{named} searched as any other word",) if odd else ()
    long = network.lengths > _TOLD
    if not long.any():
        return told
    typed = int((long & searched_tokens(network).allowed).sum())
    seen = f"of {len(long)} rows of the table of words have more than {_TOLD:g} times the usual"
    how = f"{typed} for tokens that can be typed: searches rank them by direction too"
    return (*told, f"{int(long.sum())} {seen} length, {how}")


@dataclass(frozen=True, eq=False)
class SearchedTokens:
    """What a search may insert.

    Attributes:
      allowed: bool `[vocabulary]`, what typed texts hold; see `searched_tokens`.
      drawn: bool `[vocabulary]`, what random starts are drawn of, all that are allowed among them;
        one that is not allowed is drawn again.
      usual: usual special tokens that typed texts hold; they are tried, and proposed by nothing.
    """

    allowed: np.ndarray
    drawn: np.ndarray
    usual: tuple[int, ...] = ()

    def without(self, others: np.ndarray) -> "SearchedTokens":
        """Less others, bool `[vocabulary]`; all where hardly one would be left."""
        allowed, drawn = self.allowed & ~others, self.drawn & ~others
        few = allowed.sum() < _FEWEST_FREE
        return self if few else SearchedTokens(allowed, drawn, self.usual)

    def draw(self, most: int, draw: np.random.Generator) -> np.ndarray:
        """Random allowed tokens, int `[most]`, fewer of a small vocabulary."""
        most = min(most, int(self.allowed.sum()))
        tokens = draw.choice(np.flatnonzero(self.drawn), most, replace=False)
        tokens = tokens[self.allowed[tokens]]
        if len(tokens) == most:
            return tokens
        others = np.setdiff1d(np.flatnonzero(self.allowed), tokens)
        return np.append(tokens, draw.choice(others, most - len(tokens), replace=False))


def searched_tokens(network: TokenNetwork) -> SearchedTokens:
    """What typed texts hold, less the usual special tokens and a mark of a space alone.

    Starts are drawn of what a vocabulary's names alone let through, as they were before anybody
    asked the tokenizer: so a token that no text holds takes the place of no other.
    """
    vocabulary, known = network.tokenizer.vocabulary, len(network.words)
    usual = usual_special(network.tokenizer)
    special = set(network.tokenizer.backend.all_special_ids)
    words = {t: n for t, n in vocabulary.items() if t.strip("\u0120") and n < known}
    found = typed_ids(network.tokenizer, words)
    known_special = {n for t, n in words.items() if t in usual}
    typed = found - known_special
    named = {n for t, n in words.items() if not t.startswith(_BEGINS_UNTYPED)} - special
    allowed, drawn = np.zeros((2, known), bool)
    allowed[sorted(typed)] = drawn[sorted(typed | named)] = True
    return SearchedTokens(allowed, drawn, tuple(sorted(found & known_special)))


def typed_ids(tokenizer: Tokenizer, tokens: Mapping[str, int]) -> set[int]:
    """The ids of those tokens that the tokenizer gives to some text.

    Each is asked for as a text of its own, a piece of a word behind words that leave it whole, the
    others within a text. Tokens of bytes that are part of a character are taken for typed where
    some character has such bytes.
    """
    texts = {number: _text(tokenizer, token) for token, number in tokens.items()}
    found = _given(tokenizer, texts.values())
    words = [t for t, number in tokens.items() if number in found and t.isalpha()]
    pieces = [t for t, n in tokens.items() if t.startswith(_PIECE) and n not in found]
    found |= _given(tokenizer, _joined(pieces, words, tokens))
    left = [text for number, text in texts.items() if number not in found]
    found |= _given(tokenizer, [f"a{b}{text}{b}a" for text in left for b in ("", " ")])
    broken = [t for t, n in tokens.items() if n not in found and "\ufffd" in texts[n]]
    return (found | {tokens[t] for t in broken if _is_part(t)}) & set(tokens.values())


def _text(tokenizer: Tokenizer, token: str) -> str:
    """What is typed for a token that stands alone."""
    return str(tokenizer.backend.convert_tokens_to_string([token]))


def _given(tokenizer: Tokenizer, texts: Iterable[str]) -> set[int]:
    """All ids that texts get, less those that every text gets; of what can be a text."""
    before, after = special_tokens(tokenizer)
    fit = [text for text in texts if len(text) <= MAX_CHARACTERS and is_unicode(text)]
    rows = _rows(tokenizer, fit)
    return {number for row in rows for number in row[before : len(row) - after]}


def _rows(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Ids of texts; without those that a vocabulary without a token for the unknown cannot cut."""
    try:
        return tokenizer.rows(texts, MAX_CHARACTERS)
    except LoadError:
        half = len(texts) // 2
        if not half:
            return []
        return _rows(tokenizer, texts[:half]) + _rows(tokenizer, texts[half:])


def _joined(pieces: Sequence[str], words: Sequence[str], tokens: Mapping[str, int]) -> list[str]:
    """Each piece behind words that no token joins it to: the longest token is always taken."""
    order = [words[int(n)] for n in np.random.default_rng(0).permutation(len(words))]
    joined: list[str] = []
    for piece in (one.removeprefix(_PIECE) for one in pieces):
        free = (word for word in order if not _is_longer(word, piece, tokens))
        joined += [word + piece for word in islice(free, _JOINS)]
    return joined


def _is_longer(word: str, piece: str, tokens: Mapping[str, int]) -> bool:
    """Whether a token takes more of a word and a piece behind it than the word."""
    return any(word + piece[:size] in tokens for size in range(1, len(piece) + 1))


def _is_part(token: str) -> bool:
    """Whether the bytes that a token of GPT-2's kind stands for can be a part of a text.

    >>> _is_part("\u00e2\u0122"), _is_part("\u0122\u0122"), _is_part("\u00ff")
    (True, True, False)
    """
    if not set(token) <= _BYTES.keys():
        return False
    held = bytes(_BYTES[one] for one in token)
    ends = next((n for n, one in enumerate(held) if one & 0xC0 != 0x80), len(held))
    try:  # what goes on at the start may be the end of a character, and one may begin at the end
        codecs.getincrementaldecoder("utf-8")().decode(held[ends:])
    except UnicodeDecodeError:
        return False
    return ends < 4
