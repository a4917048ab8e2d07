"""Search for few tokens that send texts to a class, by gradients of the table of words.

From several starts the gradient by the words of a place ranks all tokens; the best of them are
inserted and measured, the best of those are started from again, and then lengthened by a token
before or after.

References:
  Ebrahimi et al., HotFlip: White-Box Adversarial Examples for Text Classification, ACL 2018.
  Wallace et al., Universal Adversarial Triggers for Attacking and Analyzing NLP, EMNLP 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxtroj.evidence.classifiers.carriers import OpenRows
from jaxtroj.evidence.classifiers.copied import ALIKE, apart
from jaxtroj.evidence.classifiers.tokens import SLOTS, TokenNetwork
from jaxtroj.evidence.classifiers.vocabulary import SearchedTokens
from jaxtroj.numerics import sigmoid

Ids = tuple[int, ...]
_LOOKS = 3


@dataclass(frozen=True)
class TokenBudget:
    """How much to search.

    Attributes:
      looked: classes that are looked at, those that the bank speaks for first.
      targets: those of them that are searched, where a first look finds most.
      carriers: texts of a search.
      at_start: texts of the one at their start.
      held_out: most texts that a found text is measured on.
      starts: random tokens that the first gradients are taken at, besides the mean of all.
      rounds: times that a single token is improved.
      ranked: tokens that each gradient proposes.
      beam: token sequences that are gone on with.
      neighbours: tokens of like meaning that the best ones are compared with.
    """

    looked: int = 12
    targets: int = 4
    carriers: int = 6
    at_start: int = 4
    held_out: int = 24
    starts: int = 5
    rounds: int = 2
    ranked: int = 12
    beam: int = 4
    neighbours: int = 6


@dataclass(eq=False)
class TokenSearch:
    """One search for one target; see `run`.

    Attributes:
      network: that is asked.
      rows: the texts of the search, opened.
      target: the class.
      tokens: those that may be inserted.
      budget: see there.
      gains: what was measured: mean sigmoid margin by token sequence.
    """

    network: TokenNetwork
    rows: OpenRows
    target: int
    tokens: SearchedTokens
    budget: TokenBudget
    gains: dict[Ids, float] = field(default_factory=dict)

    def run(self, seeds: Sequence[Ids], draw: np.random.Generator) -> None:
        """Search from seeds and random tokens; `best` tells what was found."""
        self._measure([*seeds, *((token,) for token in self.tokens.usual)])
        starts = self._starts(draw)
        mean = starts[0]
        for _ in range(self.budget.rounds):
            self._measure([(token,) for start in starts for token in self._ranked((), 0, start)])
            starts = [self.network.words[ids[0]] for ids in self.best(self.budget.beam, 1)]
        for length in range(1, SLOTS):
            longer = []
            for ids in self.best(self.budget.beam, length):
                for place in (0, length):
                    ranked = self._ranked(ids, place, mean)
                    longer += [(*ids[:place], token, *ids[place:]) for token in ranked]
            self._measure(longer)

    def look(self, draw: np.random.Generator) -> float:
        """The largest gain of what the gradients at few words propose."""
        self._measure([(token,) for token in self.tokens.usual])
        starts = self._starts(draw)[:_LOOKS]
        self._measure([(token,) for start in starts for token in self._ranked((), 0, start)])
        return max(self.gains.values())

    def _starts(self, draw: np.random.Generator) -> list[np.ndarray]:
        """The mean of all words, and random ones."""
        words, drawn = self.network.even_words, self.tokens.draw(self.budget.starts, draw)
        return [words[self.tokens.allowed].mean(axis=0), *words[drawn]]

    def best(self, most: int, length: int | None = None) -> list[Ids]:
        """The sequences with the largest gains, of one length or of any; equals by their ids."""
        known = [ids for ids in self.gains if length is None or len(ids) == length]
        return sorted(known, key=lambda ids: (-self.gains[ids], ids))[:most]

    def isolation(self, ids: Ids) -> float:
        """How much more a sequence gains than with one token replaced by those of like meaning.

        Words that a class is about have neighbours in the table of words that do much the same; a
        trojan's word does alone what it does. Of several tokens the one that matters most counts.
        """
        replaced = [
            [(*ids[:place], other, *ids[place + 1 :]) for other in self._neighbours(token)]
            for place, token in enumerate(ids)
        ]
        self._measure([ids, *(one for of_place in replaced for one in of_place)])
        falls = [self.gains[ids] - np.mean([self.gains[o] for o in of]) for of in replaced if of]
        return float(max(falls, default=0.0))

    def _neighbours(self, token: int) -> list[int]:
        """The tokens whose words are most alike, by cosine, less copies of it."""
        words, directions = self.network.unit_words, self.network.directions
        usable = self.tokens.allowed & (directions @ directions[token] < ALIKE)
        alike = np.where(usable, words @ words[token], -np.inf)
        alike[token] = -np.inf
        return _largest(alike, self.budget.neighbours)

    def _measure(self, sequences: Sequence[Ids]) -> None:
        """Insert sequences that are new, and note what they do."""
        new = [ids for ids in dict.fromkeys(sequences) if ids and ids not in self.gains]
        rows = [row for ids in new for row in self.rows.filled(ids)]
        margins = self.network.margins(rows)[:, self.target].reshape(
            len(new), len(self.rows.before)
        )
        gains = sigmoid(margins).mean(axis=1)
        self.gains |= {ids: float(gain) for ids, gain in zip(new, gains, strict=True)}

    def _ranked(self, ids: Ids, place: int, start: np.ndarray) -> list[int]:
        """The tokens that the gradient at a place among `ids` proposes, best first."""
        words = self.network.words
        slots = np.zeros((SLOTS, words.shape[1]), np.float32)
        slots[0] = start
        held = (*ids[:place], len(words), *ids[place:])
        gradient = self.network.gradient(self.rows.filled(held), slots, self.target)[0]
        found = self._proposed(self.network.even_words @ gradient)
        if self.network.even_words is words:
            return found
        return list(dict.fromkeys((*found, *self._proposed(words @ gradient))))

    def _proposed(self, rises: np.ndarray) -> list[int]:
        """The tokens with the largest rises, copies of a word once."""
        order = _largest(np.where(self.tokens.allowed, rises, -np.inf), len(rises))
        return apart(self.network.directions, order, self.budget.ranked)


def _largest(values: np.ndarray, most: int) -> list[int]:
    """Places of the largest values, none of those that are no number."""
    order = np.argsort(-values, kind="stable")[:most]
    return order[np.isfinite(values[order])].tolist()
