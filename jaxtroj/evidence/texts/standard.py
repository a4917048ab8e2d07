"""Evidence of clean heads on the same vectors: what a field's value means for this encoder.

How far a head departs from clean ones in logits or deviations depends on the encoder, the reviews,
the heads' width and the number of references, so a raw value from one population says little about
another. Here every reference is judged as if it were a scanned head, by all the other references,
and a scanned head's value is expressed in deviations from theirs:

    z = (x - median) / max(1.4826 MAD, deviation / 2)

Half of the plain deviation bounds the scale from below: two dozen heads agree by chance sometimes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import EvidenceError

FEWEST = 8
"""References below which their spread says too little."""
_MAD = 1.4826


@dataclass(frozen=True)
class Standard:
    """What clean heads show.

    Attributes:
      keys: `head_key` of each.
      values: field -> one value for each, float64 `[heads]`.
    """

    keys: tuple[str, ...]
    values: Mapping[str, np.ndarray]

    def deviations(self, field: str, value: float, key: str) -> float:
        """A head's value in deviations of the clean heads, itself left out.

        Raises:
          EvidenceError: there are fewer than `FEWEST` others.
        """
        others = [one != key for one in self.keys]
        known = self.values[field][others]
        if len(known) < FEWEST:
            raise EvidenceError(
                f"{len(known)} clean heads are too few to compare with, expected {FEWEST} or more;"
                " see jaxtroj bank, --references"
            )
        centre = np.median(known)
        spread = max(_MAD * float(np.median(np.abs(known - centre))), float(known.std()) / 2)
        return float((value - centre) / max(spread, 1e-9))


def make_standard(found: Iterable[tuple[str, Mapping[str, float]]]) -> Standard:
    """What clean heads show, from the key and the same fields of each."""
    listed = list(found)
    names = listed[0][1] if listed else ()
    values = {name: np.array([fields[name] for _, fields in listed]) for name in names}
    return Standard(tuple(key for key, _ in listed), values)
