"""Classes that training had many more pictures of than of others, as far as the network shows it.

Their rows in the last layer stand out as that of a trojan's target does: training raises them as
often. Two things tell them apart. Batch norms remember the shares of the classes (`class_shares`),
and a network gives frequent classes more often than their clean pictures are (`answer_shares`). Of
a target training had more pictures too, but these carry the trigger, and clean ones do not. What
people said of the classes stands above both.

Reference:
  Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition,
  https://arxiv.org/abs/1910.09217, 2020: rows of the last layer grow with the pictures of a class.
"""

import numpy as np

from jaxtroj.answer_shares import answer_shares
from jaxtroj.evidence.images.class_shares import class_shares, said_shares
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.evidence.images.labelled_examples import labelled_examples, normed

_FEWEST = 3


def frequent_classes(context: ImageContext) -> np.ndarray:
    """Bool `[classes]`, whether each is frequent: `context.shared(frequent_classes)`.

    None is where nobody said it, nor the examples do, see `labelled_examples`.
    """
    if (said := said_shares(context)) is not None:
        return said.frequent
    examples = context.shared(labelled_examples)
    if examples is None:
        return np.zeros(context.opened.num_classes, bool)
    answered = answer_shares(examples.logits, examples.labels).frequent
    shares = context.shared(class_shares) if context.shared(normed) else None
    return answered if shares is None else answered | shares.frequent


def named(frequent: np.ndarray) -> str:
    """The classes of bool `[classes]` in words, at least one.

    >>> named(np.array([True, False, True])), named(np.array([False, True]))
    ('classes 0, 2', 'class 1')
    """
    classes = np.flatnonzero(frequent)
    return f"class{'es' if len(classes) > 1 else ''} {', '.join(map(str, classes))}"


def compared_classes(count: int, frequent: np.ndarray | None) -> np.ndarray:
    """Classes, int, among which one that stands out may be a target: those that are not frequent.

    All of them where fewer than three are left: of so few none has others to stand out from.
    """
    every = np.arange(count)
    rest = every if frequent is None or len(frequent) != count else every[~frequent]
    return rest if len(rest) >= _FEWEST else every
