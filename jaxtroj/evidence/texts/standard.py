"""Evidence of clean heads on the same vectors: what a field's value means for this encoder.

How far a head departs from clean ones in logits or deviations depends on the encoder, the reviews,
the heads' width and the number of references, so a raw value from one population says little about
another. Here every reference is judged as if it were a scanned head, by all the other references,
and a scanned head's value is expressed in deviations from theirs:

    z = (r - median) / max(1.4826 MAD, deviation / 2)        r = x - slope * steepness

A steep head (much training, little dropout) departs further from others with or without a trojan:
what the references' steepness explains of a field is taken off first, by a line with a small ridge.
Poisoned heads are no steeper than clean ones, so it says nothing of the label itself. But whoever
multiplies a head's last layer makes it steeper, and no answer changes: so a scanned head counts
with the steepness that it has where its logits are as large as those of the references, and none
lies farther out on the line than the middle three fifths of these. Half of the plain deviation
bounds the scale from below: two dozen heads agree by chance sometimes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import EvidenceError

FEWEST = 8
"""References below which their spread says too little."""
_MAD = 1.4826
_OUTER = 0.2  # share of the references at either end beyond which steepness explains no more
_RIDGE = 3.0  # heads without any slope that are added to the fit of the line


@dataclass(frozen=True)
class Standard:
    """What clean heads show.

    Attributes:
      keys: `head_key` of each.
      values: field -> one value for each, float64 `[heads]`.
      steepness: name of the field that tells how steep a head is, a logarithm.
      size: name of the field that tells how large its logits are, above 0.
    """

    keys: tuple[str, ...]
    values: Mapping[str, np.ndarray]
    steepness: str
    size: str

    def deviations(self, fields: Mapping[str, float], key: str) -> dict[str, float]:
        """A head's values in deviations of the clean heads, itself left out.

        Args:
          fields: of the head, by name: those to tell, its steepness and its size.
          key: its `head_key`.

        Raises:
          EvidenceError: there are fewer than `FEWEST` others.
        """
        others = np.array([one != key for one in self.keys], bool)
        if others.sum() < FEWEST:
            raise EvidenceError(
                f"{others.sum()} clean heads are too few to compare with, expected {FEWEST} or"
                " more; see jaxtroj bank, --references"
            )
        steep = self.values[self.steepness][others]
        scale = max(float(steep.std()), 1e-9)
        usual = float(np.median(_logarithm(self.values[self.size][others])))
        own = fields[self.steepness] + usual - float(_logarithm(fields[self.size]))
        own = np.clip(own, *np.quantile(steep, (_OUTER, 1 - _OUTER)))
        known, place = (steep - steep.mean()) / scale, float(own - steep.mean()) / scale
        return {
            name: _deviation(value, self.values[name][others], place, known)
            for name, value in fields.items()
            if name not in (self.steepness, self.size)
        }


def _deviation(value: float, values: np.ndarray, steepness: float, steep: np.ndarray) -> float:
    """In deviations of `[n]`, each less what its steepness (standardised, `[n]`) explains."""
    slope = float(steep @ (values - values.mean())) / (float(steep @ steep) + _RIDGE)
    left = values - slope * steep
    centre = np.median(left)
    spread = max(_MAD * float(np.median(np.abs(left - centre))), float(left.std()) / 2, 1e-9)
    return float((value - slope * steepness - centre) / spread)


def _logarithm(size: np.ndarray | float) -> np.ndarray:
    return np.log(np.maximum(size, np.finfo(np.float64).tiny))


def make_standard(
    found: Iterable[tuple[str, Mapping[str, float]]], steepness: str, size: str
) -> Standard:
    """What clean heads show, from the key and the same fields of each, these two among them."""
    listed = list(found)
    names = listed[0][1] if listed else ()
    values = {name: np.array([fields[name] for _, fields in listed]) for name in names}
    return Standard(tuple(key for key, _ in listed), values, steepness, size)
