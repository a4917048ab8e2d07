"""Best-first search over joins of candidate texts, measured through the encoder.

A bank tells what each single text does to a sentence vector on average. Of all joins one piece
longer than those tried, the ones whose added shifts the head makes most of go through the encoder,
inserted into clean examples in their first and in their second half; all others cost the head only.
A text counts by how far the head departs from clean heads in the half that serves it better, so
mere sentiment gains nothing, and a trigger that works in one half only is found too.

Relatives: PICCOLO (Liu et al., S&P 2022) and DBS (Shen et al., ICML 2022) invert words by gradients
through the encoder; here the bank's shifts stand for its gradient.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from jaxtroj.evidence.texts.insertion import HALVES, insert, places, sentences
from jaxtroj.evidence.texts.labelled_texts import content_key
from jaxtroj.evidence.texts.references import References
from jaxtroj.numerics import sigmoid

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to vectors float32 `[n, d]`."""
Joined = tuple[int, ...]
"""Numbers of pieces, in the order in which they are joined."""

# Numbers of vectors are filled up to a multiple, so that few programs compile.
_FILL = 128


@dataclass(frozen=True)
class RecoveryBudget:
    """How much to search.

    Attributes:
      texts: most texts that go through the encoder, measuring included.
      fitting: clean examples that candidates are searched on.
      held_out: most examples, apart from those, that the found text is measured on.
      singles: single candidates that the search begins with.
      proposals: joins of each round that go through the encoder.
      pieces: most candidates in a text.
      least_gain: mean sigmoid margin that another piece must gain, in [0, 1].
    """

    texts: int = 400
    fitting: int = 4
    held_out: int = 12
    singles: int = 12
    proposals: int = 8
    pieces: int = 4
    least_gain: float = 0.02


USUAL = RecoveryBudget()


@dataclass(frozen=True)
class Pieces:
    """What texts are joined from, the most promising first.

    Attributes:
      texts: candidates of a bank, each once.
      shifts: float32 `[k, d]`, mean shift of each.
      harmless: a text that does to most heads what most texts do, for comparison.
    """

    texts: tuple[str, ...]
    shifts: np.ndarray
    harmless: str


class CountedEncoder:
    """An encoder that counts the texts it has seen."""

    def __init__(self, embed: Embed):
        self._embed, self.done = embed, 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.done += len(texts)
        return self._embed(texts)


@dataclass(frozen=True)
class SourceExamples:
    """Source examples: texts, vectors `[n, d]`, and the head's own classes int `[n]`."""

    texts: tuple[str, ...]
    embeddings: np.ndarray
    classes: np.ndarray

    @cached_property
    def _parts(self) -> list[tuple[list[str], tuple[int, ...]]]:
        """Sentences of each text, and the place of an insertion in each half."""
        return [(sentences(text), _places(text)) for text in self.texts]

    def inserted(self, text: str, embed: Embed) -> np.ndarray:
        """Vectors `[halves, n, d]` with the text inserted; the same places for every text."""
        texts = [
            insert(parts, text, chosen[half])
            for half in range(HALVES)
            for parts, chosen in self._parts
        ]
        return embed(texts).reshape(HALVES, len(self.texts), -1)


def _places(text: str) -> tuple[int, ...]:
    """One random place in each half, keyed by the text."""
    draw = np.random.default_rng(list(content_key(text)))
    allowed = (places(len(sentences(text)), half) for half in range(HALVES))
    return tuple(int(draw.choice(np.asarray(some))) for some in allowed)


@dataclass(frozen=True)
class Judge:
    """The head, clean heads, and the target that they are asked about."""

    head: References
    known: References | None
    target: int

    @cached_property
    def num_classes(self) -> int:
        """Number of logits."""
        return self.head.configs[0].num_classes  # pyright: ignore[reportAttributeAccessIssue]

    def margins(self, vectors: np.ndarray) -> np.ndarray:
        """Margin of the target, `[...]` of vectors `[..., d]`."""
        return margins_of(self.head, vectors)[0, ..., self.target]

    def gain(self, vectors: np.ndarray) -> np.ndarray:
        """Sigmoid margin of the target, less the clean heads' mean, `[...]` of `[..., d]`."""
        own = sigmoid(self.margins(vectors))
        if self.known is None:
            return own
        return own - sigmoid(margins_of(self.known, vectors)[..., self.target]).mean(axis=0)

    def on_references(self, clean: np.ndarray, moved: np.ndarray) -> float | None:
        """Share in [0, 1] that clean heads give the target only once a text is inserted.

        Args:
          clean: vectors `[n, d]` before; those that a head gives the target already do not count.
          moved: vectors `[halves, n, d]` after.
        """
        if self.known is None:
            return None
        outside = margins_of(self.known, clean)[..., self.target] < 0
        flipped = margins_of(self.known, moved)[..., self.target] > 0
        counted = np.broadcast_to(outside[:, None], flipped.shape)
        return float(flipped[counted].mean()) if counted.any() else None


def margins_of(heads: References, vectors: np.ndarray) -> np.ndarray:
    """Margins `[heads, ..., classes]` of vectors `[..., d]`."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    filled = np.resize(flat, (-(-len(flat) // _FILL) * _FILL, flat.shape[1]))
    found = heads.margins(filled)[:, : len(flat)]
    return found.reshape(len(found), *vectors.shape[:-1], -1)


class TextSearch:
    """Best-first search over joins of pieces."""

    def __init__(
        self,
        judge: Judge,
        fitting: SourceExamples,
        pieces: Pieces,
        embed: CountedEncoder,
        budget: RecoveryBudget,
        allowed: int,
    ):
        self._judge, self._fitting, self._pieces = judge, fitting, pieces
        self._embed, self._budget, self._allowed = embed, budget, allowed
        self._values: dict[Joined, float] = {}
        self._shifts: dict[Joined, np.ndarray] = {}

    def best(self) -> str:
        """The text that serves best for its length."""
        for number in range(min(self._budget.singles, len(self._pieces.texts))):
            self._try((number,))
        for _ in range(self._budget.pieces - 1):
            before = self._leader()
            for joined in self._proposals():
                self._try(joined)
            if self._leader() == before:
                break
        return self._text(self._leader())

    def _leader(self) -> Joined:
        """The best tried; of equals the one that was promising earlier."""
        return min(self._values, key=lambda joined: (-self._values[joined], joined))

    def _text(self, joined: Joined) -> str:
        return " ".join(self._pieces.texts[number] for number in joined)

    def _try(self, joined: Joined) -> None:
        """Measure a text on the fitting examples, while the budget lasts."""
        if self._embed.done + HALVES * len(self._fitting.texts) > self._allowed:
            return
        vectors = self._fitting.inserted(self._text(joined), self._embed)
        gains = self._judge.gain(vectors).mean(axis=1)
        self._values[joined] = float(gains.max()) - self._budget.least_gain * (len(joined) - 1)
        self._shifts[joined] = (vectors - self._fitting.embeddings).mean(axis=(0, 1))

    def _proposals(self) -> list[Joined]:
        """Joins one piece longer than those tried whose added shifts the head makes most of.

        Only what has not been tried in any order.
        """
        seen = {frozenset(joined) for joined in self._values}
        longer: dict[frozenset[int], Joined] = {}
        shorter = [joined for joined in self._values if len(joined) < self._budget.pieces]
        for joined, number in product(shorter, range(len(self._pieces.texts))):
            pieces = frozenset((*joined, number))
            if len(pieces) > len(joined) and pieces not in seen:
                longer.setdefault(pieces, (*joined, number))
        if not longer:
            return []
        joins = list(longer.values())
        shifts = np.stack([self._shifts[j[:-1]] + self._pieces.shifts[j[-1]] for j in joins])
        gains = self._judge.gain(self._fitting.embeddings + shifts[:, None]).mean(axis=1)
        order = np.argsort(-gains, kind="stable")[: self._budget.proposals]
        return [joins[place] for place in order]
