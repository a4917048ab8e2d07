"""Labelled examples in turn, with what a network and its batch norms make of them, asked once."""

from dataclasses import dataclass

import numpy as np

from converters.batch_norms import has_batch_norms
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.network import usual_count
from jaxtroj.norm_memory import Norms
from jaxtroj.rounds.turns import MANY_CLASSES, in_turn

_FEWEST = 4
"""Examples, whatever their classes."""
_ABSENT, _MANY = 0.1, 20
"""Share of the classes that may be without an example, and classes that are many enough."""


@dataclass(frozen=True)
class SharesBudget:
    """How many examples shares of classes are told by, both halves together.

    Attributes:
      most: of networks with batch norms, and of small pictures.
      least: without batch norms, however large the pictures are; between, a batch of `Network`.
    """

    most: int = 160
    least: int = 80

    def of(self, images: np.ndarray, has_norms: bool) -> int:
        """How many of images `[n, h, w, c]`."""
        return self.most if has_norms else min(self.most, max(self.least, usual_count(images)))


@dataclass(frozen=True)
class LabelledExamples:
    """Examples that all say their class, the classes in turn.

    Attributes:
      labels: int `[n]`.
      logits: `[n, classes]`, finite.
      rows, sizes: moments `[n, dims]` of the batch norms and channels of each, see
        `norm_memory.memory_of`; none without batch norms.
    """

    labels: np.ndarray
    logits: np.ndarray
    rows: np.ndarray | None = None
    sizes: tuple[int, ...] = ()


def labelled_examples(context: ImageContext) -> LabelledExamples | None:
    """Some of the examples: `context.shared(labelled_examples)`.

    None of very many classes, and of examples that do not all say theirs.
    """
    examples = context.examples
    if context.opened.num_classes > MANY_CLASSES or (examples.labels < 0).any():
        return None
    has_norms = context.shared(normed)
    count = context.budget(SharesBudget).of(examples.images, has_norms)
    chosen = in_turn(examples.labels, count)
    images, labels = np.asarray(examples.images[chosen], np.float32), examples.labels[chosen]
    if not has_norms:
        return LabelledExamples(labels, np.nan_to_num(np.asarray(context.network.logits(images))))
    norms = Norms(context.opened, context.network.batch(images))
    return LabelledExamples(labels, *norms.seen(images), norms.sizes(images))


def normed(context: ImageContext) -> bool:
    """Whether batch norms can be compared with the examples: `context.shared(normed)`.

    Their running statistics are of the mixture of all classes. Examples of some of them are another
    mixture, and a clean network then looks as if it remembered triggers: see `shows_classes`.
    """
    classes = context.opened.num_classes
    return has_batch_norms(context.opened) and shows_classes(context.examples.labels, classes)


def shows_classes(labels: np.ndarray, classes: int) -> bool:
    """Whether examples are enough, and of nearly all classes as far as they say theirs.

    Args:
        labels: int `[n]`, below 0 where unknown.
        classes: how many the network has.

    >>> [shows_classes(np.arange(n), 20) for n in (17, 18, 20)]
    [False, True, True]
    """
    return len(labels) >= _FEWEST and _shown(labels) >= (1 - _ABSENT) * classes


def weight_of(labels: np.ndarray, classes: int) -> float:
    """What evidence counts that was measured on examples of so few classes, above 0 to 1.

    Searches reach a class sooner from few pictures and few classes, and no network of a fit was
    searched so: log-odds count by the share of the classes that is shown, of twenty at most, and of
    four pictures. 1 where they show nearly all classes.

    >>> [weight_of(np.array(labels), 6) for labels in ([0], [0, 1, 2, 2], [0, 1, 2, 3, 4, 5])]
    [0.16666666666666666, 0.5, 1.0]
    """
    if shows_classes(labels, classes):
        return 1.0
    return min(1.0, _shown(labels) / min(classes, _MANY), len(labels) / _FEWEST)


def _shown(labels: np.ndarray) -> int:
    """How many classes examples show; of unlabelled ones at most as many as there are."""
    known = labels[labels >= 0]
    return len(np.unique(known)) if len(known) else len(labels)
