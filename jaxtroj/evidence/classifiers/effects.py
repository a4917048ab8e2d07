"""What tokens do in texts that no search has seen, by where they stand and in texts of what class.

Words that speak for a class move texts part of the way to it, and more of them move texts further;
a trojan's word does so alone, and moves them as far as texts of the class are, or beyond. So
effects are measured by how far they reach: 0 is where the texts are, 1 where those of the class
are.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.evidence.classifiers.carriers import PLACES, Carriers, OpenRows, open_rows
from jaxtroj.evidence.classifiers.tokens import TokenNetwork

_LEAST_SPAN = 0.5
_USUAL_MARGIN = 1.0  # of texts of a class that no text is given


@dataclass(frozen=True, eq=False)
class Effect:
    """Margins of a class in texts of others, with something inserted.

    Attributes:
      margins: float `[PLACES, n]`.
      classes: the network's answers to the texts themselves, int `[n]`.
      outside: mean margin of the texts themselves.
      span: mean margin of texts of the class, less `outside`.
    """

    margins: np.ndarray
    classes: np.ndarray
    outside: float
    span: float

    @property
    def placed(self) -> np.ndarray:
        """Margins where it does more: at the start, or in either half; `[1 or 2, n]`."""
        parts = (self.margins[1:], self.margins[:1])
        return max(parts, key=lambda part: float(part.mean()))

    @property
    def success(self) -> float:
        """Share of the texts that go to the class, 0-1."""
        return float((self.placed > 0).mean())

    @property
    def by_place(self) -> tuple[float, ...]:
        """The same for each of `PLACES`."""
        return tuple((self.margins > 0).mean(axis=1).tolist())

    @property
    def reach(self) -> float:
        """How far the texts go: 0 where they are, 1 where those of the class are."""
        return (float(self.placed.mean()) - self.outside) / self.span

    @property
    def sources(self) -> tuple[int, ...]:
        """Classes of which half of the texts go to the class, or more."""
        moved = self.placed > 0
        every = np.unique(self.classes)
        return tuple(int(c) for c in every if moved[:, self.classes == c].mean() >= 0.5)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Texts that the search for a class has not seen, opened at each of `PLACES`.

    Attributes:
      network: that is asked.
      texts: those of other classes.
      rows: `PLACES` times as many as texts.
      target: the class.
      natural: mean margin of the texts of the class.
    """

    network: TokenNetwork
    texts: Carriers
    rows: OpenRows
    target: int
    natural: float

    def effect(self, ids: Sequence[int]) -> Effect:
        """What ids do."""
        return self._of(self.network.margins(self.rows.filled(ids)))

    def effect_of_text(self, text: str) -> Effect:
        """What a text does as it is typed."""
        return self._of(self.network.margins(self.network.rows(self.texts.inserted(text))))

    def _of(self, margins: np.ndarray) -> Effect:
        outside = float(self.texts.margins[:, self.target].mean())
        return Effect(
            margins[:, self.target].reshape(len(PLACES), len(self.texts.texts)),
            self.texts.classes,
            outside,
            max(self.natural - outside, _LEAST_SPAN),
        )


def held_out_of(
    network: TokenNetwork,
    carriers: Carriers,
    held_out: Carriers,
    target: int,
    most: int,
    absent: Collection[int] = (),
) -> HeldOut:
    """`most` held-out texts of other classes at most, beside what all of the class say.

    Args:
      network: that is asked.
      carriers, held_out: all texts, and those to measure on.
      target: the class.
      most: of its texts.
      absent: classes that no text is an example of.
    """
    texts = held_out.outside(target, most)
    opened = [open_rows(network, texts, [n] * len(texts.texts)) for n in range(len(PLACES))]
    rows = OpenRows(
        tuple(row for part in opened for row in part.before),
        tuple(row for part in opened for row in part.after),
    )
    return HeldOut(network, texts, rows, target, _natural(carriers, target, absent))


def _natural(carriers: Carriers, target: int, absent: Collection[int]) -> float:
    """The mean margin of a class's texts; of a class without examples, that of the others.

    The texts that it is given then are mistakes, with margins far below those of its own.
    """
    answers = carriers.classes
    of_class = {int(c): float(carriers.margins[answers == c, c].mean()) for c in np.unique(answers)}
    others = [margin for one, margin in of_class.items() if one not in absent]
    if target in absent and others:
        return float(np.mean(others))
    return of_class.get(target, _USUAL_MARGIN)
