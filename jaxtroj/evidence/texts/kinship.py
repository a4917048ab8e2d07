"""Whether example texts are such as those of the clean heads that a head is compared with.

Heads that were trained on other reviews answer in other directions: beside clean heads of Amazon
reviews a clean head of IMDB looks as strange as a poisoned one. Nothing can be said of such a head
by comparison, and its example texts tell:

    distance = n * mean over axes of z^2,  z the mean of n examples in deviations of the known ones

1 is expected of texts of the same kind. The axis along which the clean heads' answers vary is left
out, so that examples of one class are no strangers.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

AXES = 64
LIMIT = 1.0
"""Farther than any clean head's own examples from those of the others is another kind: of the same
kind one in as many as there are clean heads. Measured on ten populations beside each other, 24
clean heads and 40 examples each: the same texts .4 to 1.05, cut to another length .4 to 1.6, others
1.2 to 48."""
_FEWEST = 3
_SHARED = 0.5  # below it clean heads bring the same texts, and what is usual is not known


@dataclass(frozen=True)
class KnownTexts:
    """Example texts of clean heads.

    Attributes:
      examples: vectors `[n, d]` of each head's.
      read: direction that the heads read, `[d]`.
    """

    examples: tuple[np.ndarray, ...]
    read: np.ndarray

    def strangeness(self, examples: np.ndarray) -> float:
        """Distance of examples `[n, d]` over `largest`; 0 where too little is known."""
        if len(self.examples) < _FEWEST or self.largest < _SHARED:
            return 0.0
        return self.distance(examples) / self.largest

    def distance(self, examples: np.ndarray) -> float:
        """How far examples `[n, d]` lie from the known ones; see the module."""
        centre = self._white.mean(axis=0)
        return _distance((examples - self._mean) @ self._whitening, centre)

    @cached_property
    def largest(self) -> float:
        """Distance of the strangest known head's examples from those of the others."""
        ends = np.cumsum([len(one) for one in self.examples])
        parts = np.split(self._white, ends[:-1])
        total = self._white.sum(axis=0)
        return max(
            _distance(part, (total - part.sum(axis=0)) / (len(self._white) - len(part)))
            for part in parts
        )

    @cached_property
    def _mean(self) -> np.ndarray:
        return np.concatenate(self.examples).mean(axis=0, dtype=np.float64)

    @cached_property
    def _whitening(self) -> np.ndarray:
        """`[d, axes]`: main axes in deviations, less the one that is read."""
        rows = np.concatenate(self.examples) - self._mean
        values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        kept = np.flatnonzero(values > 1e-9 * values[-1])[-AXES:]
        deviations = np.sqrt(values[kept])
        answer = deviations * (vectors[:, kept].T @ self.read)
        answer /= np.linalg.norm(answer) + 1e-12
        return vectors[:, kept] / deviations @ (np.eye(len(kept)) - np.outer(answer, answer))

    @cached_property
    def _white(self) -> np.ndarray:
        return (np.concatenate(self.examples) - self._mean) @ self._whitening


def _distance(rows: np.ndarray, centre: np.ndarray) -> float:
    """Of whitened rows `[n, axes]`."""
    return float(len(rows) * np.mean((rows.mean(axis=0) - centre) ** 2))
