"""How many of the training pictures were of each class, by what batch norms remember.

Most data sets are unequal, and clean examples are mostly given equally for each class. What the
norms then lack of the class that training had most pictures of looks like what they lack of a
trojan's target: its features stand in the running statistics, and not in those of the examples.

The mean moments of the examples of each class, mixed by the shares of training, are those of
training. So shares are fitted, none below 0 and together 1, that bring the mixture to what the
norms remember. A trigger is no mixture of clean classes: shares count only where they explain half
of the distance for examples that they were not fitted on. Distances are products of what two halves
of the examples are off by, so that chance, which differs between them, has no part in their mean.

Where people said how many pictures each class had, nothing is fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.evidence.images.labelled_examples import labelled_examples
from jaxtroj.norm_memory import apart_from_training

# How strongly shares are pulled to equal ones, beside the mean size of what classes differ by.
_RIDGES = (0.3, 0.05, 0.01, 0.002)
_ENOUGH = 0.5  # of the distance explained; what triggers add is mostly no mixture of classes
_SUM = 1e3  # weight of the sum of the shares beside the distance
_STEPS = 100  # of the fit for each class; it takes about one
_UNEQUAL, _FREQUENT = 1.5, 2.0  # times the share of a class among equal ones


@dataclass(frozen=True)
class ClassShares:
    """Shares of the training pictures.

    Attributes:
      shares: `[classes]`, together 1; equal ones for classes that too few examples are of.
      explained: of the distance between equally many examples of each class and what the norms
        remember, 0 to 1; 0 where they are no further apart than by chance.
      is_said: whether people said them, so that nothing was fitted.
    """

    shares: np.ndarray
    explained: float
    is_said: bool = False

    @property
    def is_unequal(self) -> bool:
        """Whether the shares may be believed, and differ by more than fits of equal ones do."""
        largest = float(self.shares.max()) * len(self.shares)
        return self.explained >= _ENOUGH and largest >= _UNEQUAL

    @property
    def frequent(self) -> np.ndarray:
        """Bool `[classes]`, whether a class had many more pictures than equal classes have."""
        least = _UNEQUAL if self.is_said else _FREQUENT
        return self.is_unequal & (self.shares >= least / len(self.shares))

    def share_of(self, target: int) -> float | None:
        """Share of a class that had many more pictures than equal classes have; None for others."""
        return float(self.shares[target]) if self.frequent[target] else None


def class_shares(context: ImageContext) -> ClassShares | None:
    """Shares by some of the examples: `context.shared(class_shares)`.

    As people said, else of a network with batch norms; None where the examples do not tell, see
    `labelled_examples`.
    """
    if (said := said_shares(context)) is not None:
        return said
    examples = context.shared(labelled_examples)
    if examples is None or examples.rows is None:
        return None
    classes = context.opened.num_classes
    return fitted_shares(examples.rows, examples.sizes, examples.labels, classes)


def said_shares(context: ImageContext) -> ClassShares | None:
    """What people said of the classes; None where they said nothing."""
    if context.class_counts is None:
        return None
    counts = np.array(context.class_counts)
    return ClassShares(counts / counts.sum(), 1.0, is_said=True)


def fitted_shares(
    rows: np.ndarray, sizes: Sequence[int], labels: np.ndarray, classes: int
) -> ClassShares | None:
    """Shares by the moments of examples; None where fewer than two classes are in both halves.

    Args:
      rows, sizes: see `norm_memory.memory_of`; examples go through the classes in turn.
      labels: class `[n]` of each.
      classes: how many there are.
    """
    apart = apart_from_training(rows, sizes)
    half = len(rows) // 2
    parts = [(apart[:half], labels[:half]), (apart[half:], labels[half:])]
    known = np.intersect1d(labels[:half], labels[half:])
    if len(known) < 2:
        return None
    first, second = (_means(part, own, known) for part, own in parts)
    explained = [_explained(first, second, ridge) for ridge in _RIDGES]
    best = int(np.argmax(explained))
    shares = np.full(classes, 1 / len(known))
    shares[known] = _fitted((first + second) / 2, _RIDGES[best])
    return ClassShares(shares / shares.sum(), min(1.0, explained[best]))


def _means(apart: np.ndarray, labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    return np.stack([apart[labels == label].mean(axis=0) for label in known])


def _fitted(means: np.ndarray, ridge: float) -> np.ndarray:
    """Shares `[k]` whose mixture of the classes' means `[k, dims]` comes nearest to 0."""
    from scipy.optimize import nnls

    count = len(means)
    own = means - means.mean(axis=0)
    size = np.sqrt(np.mean(np.sum(own**2, axis=1))) + np.finfo(np.float32).tiny
    pull, total = np.sqrt(ridge * count) * np.eye(count), np.full((1, count), _SUM)
    rows = np.concatenate([own.T / size, pull, total])
    asked = np.concatenate([-means.mean(axis=0) / size, pull.sum(axis=1) / count, [_SUM]])
    found = nnls(rows, asked, maxiter=_STEPS * count)[0]
    return found / found.sum()


def _explained(first: np.ndarray, second: np.ndarray, ridge: float) -> float:
    """Part of the squared distance of equal shares that fitted ones take away, of halves `[k, d]`.

    What is left of each half is told by the shares that were fitted on the other.
    """
    distance = float(first.mean(axis=0) @ second.mean(axis=0))
    if distance <= 0:
        return 0.0
    left = (_fitted(second, ridge) @ first) @ (_fitted(first, ridge) @ second)
    return max(0.0, 1 - float(left) / distance)


def drawn_by(shares: ClassShares | None, labels: np.ndarray) -> np.ndarray:
    """Indices of `[n]` examples that have the shares of training, as many as there are labels.

    Each half of the examples gives its own half, some of them more than once, so that no picture
    lies in both. Without unequal shares, and where some do not say their class, all examples stay
    where they are.
    """
    places = np.arange(len(labels))
    if shares is None or not shares.is_unequal or (labels < 0).any():
        return places
    half = len(labels) // 2
    parts = [_drawn(part, labels[part], shares.shares) for part in (places[:half], places[half:])]
    return np.concatenate(parts)


def _drawn(places: np.ndarray, labels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    present = np.unique(labels)
    if not shares[present].sum():  # classes that training had nothing of have no shares
        return places
    exact = shares[present] / shares[present].sum() * len(places)
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact)[: len(places) - counts.sum()]] += 1
    pairs = zip(present, counts, strict=True)
    return np.concatenate([np.resize(places[labels == label], n) for label, n in pairs])
