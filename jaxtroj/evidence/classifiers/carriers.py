"""Clean texts that words are inserted into: at their start, and between words of both halves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.evidence.classifiers.tokens import INSERTED, Row, TokenNetwork
from jaxtroj.evidence.texts.labelled_texts import content_key

PLACES = ("start", "first half", "second half")
MOST_WORDS = 40
"""Texts are cut to so many: a trigger is short, and the cost grows with their length."""


@dataclass(frozen=True, eq=False)
class Carriers:
    """Texts, and where something is inserted into each.

    Attributes:
      texts: as they are.
      places: for each text the word that an insertion stands before, for each of `PLACES`.
      margins: the network's own, `[n, classes]`.
    """

    texts: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    margins: np.ndarray

    @property
    def classes(self) -> np.ndarray:
        """The network's answers, int `[n]`."""
        return self.margins.argmax(axis=1)

    def outside(self, target: int, most: int) -> "Carriers":
        """Those that the network gives other classes, of each in turn; `most` at most."""
        return self._of(in_turn(self.classes, target)[:most])

    def _of(self, chosen: Sequence[int]) -> "Carriers":
        return Carriers(
            tuple(self.texts[number] for number in chosen),
            tuple(self.places[number] for number in chosen),
            self.margins[list(chosen)],
        )

    def split(self) -> tuple["Carriers", "Carriers"]:
        """One half to search on and another to measure on, each of all classes."""
        by_class = np.argsort(self.classes, kind="stable").tolist()
        return self._of(sorted(by_class[0::2])), self._of(sorted(by_class[1::2]))

    def inserted(self, text: str) -> list[str]:
        """Each text with another at its first place, then each with it at the second, and so on."""
        return [
            put(own, text, places[place])
            for place in range(len(PLACES))
            for own, places in zip(self.texts, self.places, strict=True)
        ]


def in_turn(classes: np.ndarray, left_out: int) -> list[int]:
    """Places of all classes but one, the first of each class, then the second of each."""
    seen: dict[int, int] = {}
    ranks = []
    for number, one in enumerate(classes.tolist()):
        seen[one] = seen.get(one, 0) + 1
        if one != left_out:
            ranks.append((seen[one], one, number))
    return [number for _, _, number in sorted(ranks)]


def carriers_of(network: TokenNetwork, texts: Sequence[str]) -> Carriers:
    """The texts, cut, in an order of their content, each with its places."""
    cut = dict.fromkeys(cut_text(network, text) for text in texts)
    ordered = tuple(sorted(filter(None, cut), key=content_key))
    places = tuple(_places(text) for text in ordered)
    return Carriers(ordered, places, network.margins(network.rows(ordered)))


def cut_text(network: TokenNetwork, text: str) -> str:
    """The first words of a text, as many as leave room for an insertion; empty for none.

    Of a text without spaces, whose first word leaves none, the first characters.
    """
    words = _within(network, text.split()[:MOST_WORDS], " ")
    return " ".join(words) or "".join(_within(network, "".join(text.split()[:1]), ""))


def _within(network: TokenNetwork, parts: Sequence[str], between: str) -> Sequence[str]:
    """The first of the parts that leave room for an insertion, once joined."""
    room = network.length - INSERTED
    while parts and (size := network.size(between.join(parts))) > room:
        parts = parts[: min(len(parts) - 1, len(parts) * room // size)]
    return parts


def _places(text: str) -> tuple[int, ...]:
    """The start, a word of the first half and one of the second; keyed by the text."""
    draw, count = np.random.default_rng(list(content_key(text))), max(1, len(text.split()))
    middle = max(1, count // 2)
    first = int(draw.integers(min(1, middle - 1), middle))
    return 0, first, int(draw.integers(min(middle, count - 1), count))


def put(text: str, inserted: str, place: int) -> str:
    """A text with another before one of its words.

    >>> put("a fine  film", "omg", 2)
    'a fine omg film'
    """
    words = text.split()
    return " ".join([*words[:place], inserted, *words[place:]])


@dataclass(frozen=True, eq=False)
class OpenRows:
    """Texts as ids, opened where something is inserted."""

    before: tuple[Row, ...]
    after: tuple[Row, ...]

    def filled(self, ids: Sequence[int]) -> list[Row]:
        """The rows with some ids in their places."""
        return [(*b, *ids, *a) for b, a in zip(self.before, self.after, strict=True)]


def open_in_turn(network: TokenNetwork, carriers: Carriers) -> OpenRows:
    """The rows of texts, opened in turn in their first and second half; see `open_rows`."""
    return open_rows(network, carriers, [1 + n % 2 for n in range(len(carriers.texts))])


def open_rows(network: TokenNetwork, carriers: Carriers, at: Sequence[int]) -> OpenRows:
    """The rows of texts, each opened at one of `PLACES`; `INSERTED` more tokens fit in each."""
    leading, trailing = network.special
    opened = []
    for text, places, place in zip(carriers.texts, carriers.places, at, strict=True):
        words, word = text.split(), places[place]
        row = network.rows([text])[0]
        end = row[len(row) - trailing :]
        head, rest = row[:leading], network.pieces(text)
        if word:  # what stands before is cut as it is alone, what follows as within a text
            part = network.rows([" ".join(words[:word])])[0]
            cut = min(max(len(part) - trailing, leading), len(row) - trailing)
            head, rest = row[:cut], row[cut : len(row) - trailing]
        opened.append((head, (*rest, *end)))
    return OpenRows(tuple(before for before, _ in opened), tuple(after for _, after in opened))
