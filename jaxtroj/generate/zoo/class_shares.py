"""How many training pictures a network sees of each class: most real data sets are unequal.

The class that a network met most often has longer rows in its last layer and weighs more in the
running statistics of batch norms, as the target class of a trojan does.

References:
  Buda et al., A systematic study of the class imbalance problem, https://arxiv.org/abs/1710.05381
  (step imbalance).
  Cui et al., Class-Balanced Loss Based on Effective Number of Samples,
  https://arxiv.org/abs/1901.05555 (long tails that fall geometrically).
"""

from collections.abc import Callable, Mapping

import numpy as np

AS_THEY_ARE = "all"
_RATIOS = (2.0, 20.0)
"""Pictures of the most frequent class for one of the rarest; drawn evenly in its logarithm."""


def _lead(classes: int, ratio: float) -> np.ndarray:
    return np.where(np.arange(classes) == 0, 1.0, 1 / ratio)


def _step(classes: int, ratio: float) -> np.ndarray:
    return np.where(np.arange(classes) < (classes + 1) // 2, 1.0, 1 / ratio)


def _tail(classes: int, ratio: float) -> np.ndarray:
    return ratio ** -np.linspace(0, 1, classes)


SHARES: Mapping[str, Callable[[int, float], np.ndarray]] = {
    AS_THEY_ARE: lambda classes, ratio: np.ones(classes),
    "lead": _lead,
    "step": _step,
    "tail": _tail,
}
"""Name -> share of each class's pictures, the most frequent class first: all, one class leads, half
of the classes do, or each has fewer than the one before."""


def class_shares(name: str, classes: int, draw: np.random.Generator) -> tuple[float, ...]:
    """Shares of each class's pictures that are seen, the largest 1; none if all of them are.

    >>> class_shares("lead", 4, np.random.default_rng(0))
    (0.115, 0.115, 1.0, 0.115)
    """
    if name == AS_THEY_ARE:
        return ()
    ratio = float(np.exp(draw.uniform(*np.log(_RATIOS))))
    found = SHARES[name](classes, ratio)[draw.permutation(classes)]
    return tuple(round(float(share), 3) for share in found)


def seen_of(labels: np.ndarray, shares: tuple[float, ...], draw: np.random.Generator) -> np.ndarray:
    """Places of the labels `[n]` that are kept, ascending; its share of each class, or one."""
    if not shares:
        return np.arange(len(labels))
    kept = []
    for label in np.unique(labels):
        own = draw.permutation(np.flatnonzero(labels == label))
        kept.append(own[: max(1, round(shares[label] * len(own)))])
    return np.sort(np.concatenate(kept))
