"""Labelled examples in turn, with what a network and its batch norms make of them, asked once."""

from dataclasses import dataclass

import numpy as np

from converters.batch_norms import has_batch_norms
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.network import usual_count
from jaxtroj.norm_memory import Norms
from jaxtroj.rounds.turns import MANY_CLASSES, in_turn


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
    """Whether the network has batch norms with running statistics: `context.shared(normed)`."""
    return has_batch_norms(context.opened)
