"""What share of each kind of trigger a calibrator's population was found, out of fold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.numerics import is_above

FEWEST = 5
"""Models of a kind below which a share of them is no rate, and is not named."""


@dataclass(frozen=True)
class KindFound:
    """How the models with one kind of trigger were judged by fits that had not seen them."""

    models: int
    above_half: int
    """With a probability above .5."""
    above_base: int
    """With a probability above the population's base rate."""

    @property
    def share(self) -> float:
        """Share found: above .5."""
        return self.above_half / self.models


def found_by_kind(
    probabilities: np.ndarray, poisoned: np.ndarray, kinds: Sequence[str]
) -> Mapping[str, KindFound]:
    """Kind -> how its poisoned models were judged, by alphabet; probabilities [n] out of fold."""
    base, names = float(poisoned.mean()), np.array(kinds or [""] * len(poisoned))
    found = {}
    for kind in sorted({str(name) for name in names[poisoned] if name}):
        own = probabilities[poisoned & (names == kind)]
        above_half, above_base = int(is_above(own).sum()), int(is_above(own, base).sum())
        found[kind] = KindFound(len(own), above_half, above_base)
    return found


def shares_of(found: Mapping[str, KindFound]) -> Mapping[str, float]:
    """Kind -> share found, 0 to 1, of the kinds with at least `FEWEST` models.

    >>> shares_of({"patch": KindFound(8, 6, 7), "border": KindFound(2, 2, 2)})
    {'patch': 0.75}
    """
    return {kind: own.share for kind, own in found.items() if own.models >= FEWEST}


def found_text(found: Mapping[str, float]) -> str:
    """Shares in a few words.

    >>> found_text({"patch": 0.938, "warp": 0.5})
    'patch 94 %, warp 50 %'
    """
    return ", ".join(f"{kind} {share:.0%}".replace("%", " %") for kind, share in found.items())
