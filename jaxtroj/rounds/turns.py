"""Which of many examples are taken: the classes in turn, and of many classes scattered ones."""

import numpy as np

MANY_CLASSES = 44
"""As many classes as the rounds and generated networks have that calibrators were fitted on, or one
more. Networks of more are searched on a bounded number of examples and classes, so that their cost
does not grow; what those of up to so many classes get stays as it was fitted on."""
# Knuth's multiplicative hash, 2^32 over the golden ratio: classes that are alike mostly have
# numbers next to one another (ImageNet begins with fish and birds), and go far apart by it.
_SCATTER, _RANGE = 2654435761, 2**32


def scattered(numbers: np.ndarray) -> np.ndarray:
    """Sort keys of classes, int `[n]`: each has its own, so which others there are changes nothing.

    >>> classes = np.arange(6)
    >>> classes[np.argsort(scattered(classes))].tolist()
    [0, 5, 2, 4, 1, 3]
    """
    return (np.asarray(numbers).astype(np.int64) * _SCATTER) % _RANGE


def in_turn(labels: np.ndarray, limit: int) -> np.ndarray:
    """Indices of at most `limit` examples that go through the labels in turn.

    Up to `MANY_CLASSES` labels come in their order, more of them scattered.
    """
    ranks = np.zeros(len(labels), int)
    for label in np.unique(labels):
        where = labels == label
        ranks[where] = np.arange(where.sum())
    classes = np.unique(labels[labels >= 0])
    order = labels if len(classes) <= MANY_CLASSES else scattered(labels)
    return np.lexsort((order, ranks))[:limit]
