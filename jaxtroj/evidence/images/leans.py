"""What the clean examples of one class have of another in excess, beside a clean network.

A network that learned to send triggered pictures of one class to another keeps some of that for the
clean ones: it gives the target more log-probability on them than it gives other classes, and sooner
mistakes the one for the other. Classes that are alike lean to each other too, in every network of
the same classes; a clean one, of whatever architecture, tells how far.

Reference:
  Fu et al., FreeEagle, https://arxiv.org/abs/2302.14500, 2023: what one class has of another in
  excess, found without a trigger.
"""

from dataclasses import dataclass

import numpy as np

from jaxtroj.numerics import log_softmax

_TINY = 1e-6
_DEVIATIONS = 1.4826  # of a normal distribution, in its median distance from the median
_LEAST = 0.3  # of the mean size of what is left, below which no pair's usual size goes


@dataclass(frozen=True)
class Leans:
    """What each class has of each other in excess.

    Attributes:
      excess: `[source, target]`, in the usual size of pairs that are as near; NaN for a class and
        itself, and for sources without examples.
    """

    excess: np.ndarray

    @property
    def pair(self) -> tuple[int, int]:
        """Source and target that lean furthest."""
        source, target = np.unravel_index(np.nanargmax(self.excess), self.excess.shape)
        return int(source), int(target)

    @property
    def furthest(self) -> float:
        """How far, as a share of what is expected of the largest of so many normal ones."""
        pairs = int(np.isfinite(self.excess).sum())
        expected = np.sqrt(2 * np.log(max(pairs, 2)))
        return float(np.nanmax(self.excess) / expected)


def leans_beside(logits: np.ndarray, reference: np.ndarray, labels: np.ndarray) -> Leans:
    """Leans of a network, less what a clean network's, and those the other way round, explain.

    Args:
      logits: `[n, classes]` of clean examples, finite; two classes at least.
      reference: the same of a clean network of the same classes.
      labels: int `[n]` in [0, classes), as people named them: what a network mistakes counts.
    """
    own, clean = (_standard(_mean_log_probabilities(x, labels)) for x in (logits, reference))
    pairs = np.isfinite(own)
    # Of a class without examples nobody knows whether it leans back.
    causes = (clean, np.nan_to_num(own.T), np.ones_like(own))
    columns = np.stack([cause[pairs] for cause in causes], axis=1)
    explained = columns @ np.linalg.lstsq(columns, own[pairs], rcond=None)[0]
    left = own[pairs] - explained
    excess = np.full_like(own, np.nan)
    excess[pairs] = left / _usual_sizes(left, explained)
    return Leans(excess)


def _mean_log_probabilities(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """`[source, target]`, NaN for a class and itself, and for sources without examples."""
    log_probabilities = log_softmax(logits)
    means = np.full((log_probabilities.shape[1],) * 2, np.nan)
    for source in np.unique(labels):
        means[source] = log_probabilities[labels == source].mean(axis=0)
    np.fill_diagonal(means, np.nan)
    return means


def _standard(values: np.ndarray) -> np.ndarray:
    """Distance from the median in deviations, by the median distance."""
    middle = np.nanmedian(values)
    return (values - middle) / (_TINY + _DEVIATIONS * np.nanmedian(np.abs(values - middle)))


def _usual_sizes(left: np.ndarray, explained: np.ndarray) -> np.ndarray:
    """Sizes `[p]` that are usual for pairs as near as each: near ones differ more."""
    near = np.stack([np.ones_like(explained), np.maximum(explained, -1.0)], axis=1)
    sizes = near @ np.linalg.lstsq(near, np.abs(left), rcond=None)[0]
    return np.maximum(sizes, _LEAST * np.abs(left).mean() + _TINY)
