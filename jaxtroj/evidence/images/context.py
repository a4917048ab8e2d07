"""An image classifier as its stages see it: folded, called in batches, examples with anchors."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from converters.families.folding import fold
from converters.model import Model
from jaxtroj.anchors import AnchoredExamples, anchor, counted_classes
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.context import Context
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples
from jaxtroj.triggers.measure import RecoveredTrigger, strongest_first

TriggerCandidate = Callable[[AnchoredExamples], RecoveredTrigger]
"""What a stage hands over: put in place, and measured if it is not, once all stages have run."""


@dataclass(frozen=True)
class ExampleBudget:
    """How many examples of a class all stages may use; the same on every device.

    Of how many classes, `anchors.counted_classes` says.
    """

    per_class: int = 4


@dataclass(frozen=True)
class Reference:
    """A clean network of the same classes.

    Attributes:
      model: over pictures in [0, 1].
      images: the examples in their order, `[n, h, w, c]`, as it takes them.
    """

    model: Model
    images: np.ndarray


@dataclass(frozen=True, kw_only=True)
class ImageContext(Context):
    """See `Context`.

    Attributes:
      model: with batch norms folded into the convolutions before them.
      opened: the same as it was opened, with its batch norms.
      examples: clean pictures that fit it.
      reference: a network that people call clean, where they gave one.
      class_counts: how many training pictures each class had, above 0, where people said it.
    """

    model: Model
    opened: Model
    examples: Examples
    reference: Reference | None = None
    class_counts: tuple[float, ...] | None = None

    @property
    def network(self) -> Network:
        """The model, called in batches."""
        return Network(self.model)

    @property
    def has_gradient(self) -> bool:
        """Whether answers move as input gradients say; see `AnchoredExamples.is_led`."""
        return self.shared(anchored).is_led

    def recover(self, candidates: Sequence[TriggerCandidate]) -> tuple[RecoveredTrigger, ...]:
        """Triggers of all methods that ran, those that flip most held-out examples first."""
        return strongest_first([candidate(self.shared(anchored)) for candidate in candidates])


def image_context(
    model: Model,
    examples: Examples,
    seed: int = 0,
    budgets: tuple[object, ...] = (),
    reference: Reference | None = None,
    class_counts: tuple[float, ...] | None = None,
) -> ImageContext:
    """The context of a model and its clean examples.

    Args:
      model: as it was opened.
      examples: pictures that it was trained to classify.
      seed: of all random choices.
      budgets: of stages, where they are not the default.
      reference: a clean network of the same classes, with the same examples.
      class_counts: training pictures of each class, in proportion; None where nobody says.

    Raises:
      ExamplesError: the examples do not fit the model.
      EvidenceError: the model has fewer than two classes.
    """
    check_fit(model, examples.images.shape, examples.labels)
    started = time.perf_counter()
    folded = fold(model)
    seconds = {"fold": time.perf_counter() - started}
    return ImageContext(
        seed,
        budgets,
        seconds,
        model=folded,
        opened=model,
        examples=examples,
        reference=reference,
        class_counts=class_counts,
    )


def anchored(context: ImageContext) -> AnchoredExamples:
    """The examples with the model's answers and anchors: `context.shared(anchored)`."""
    classes = counted_classes(context.model.num_classes)
    limit = context.budget(ExampleBudget).per_class * classes
    return anchor(context.network, context.examples, limit)


def check_fit(model: Model, shape: Sequence[int], labels: np.ndarray) -> None:
    """Raise unless examples of a shape `[n, h, w, c]` and with these labels fit a model.

    Raises:
      ExamplesError: none, or of another size or number of channels, or of a class it lacks.
      EvidenceError: the model has fewer than two classes.
    """
    count, height, width, channels = shape
    if not count:
        raise ExamplesError("no example pictures were given; expected at least one")
    if channels != model.channels:
        raise ExamplesError(
            f"the examples have {channels} channels, the model expects {model.channels}; pictures"
            " are read in 3, or in 1 for a network that takes 1: export it for one of these"
        )
    size, takes = (height, width), model.image_size
    if takes is not None and tuple(takes) != size:
        raise ExamplesError(
            f"the examples are {size[0]} x {size[1]} pixels, the network takes {takes[0]} x"
            f" {takes[1]}; give pictures of that size, made as the network's own were,"
            f" --resize PX to make them so, or where the file leaves the size open --image-size"
            f" {size[0]}x{size[1]}"
        )
    if model.num_classes < 2:
        raise EvidenceError(
            f"the model has {model.num_classes} outputs; expected one for each of two classes or"
            " more; converters.one_output.two_classes makes two of one"
        )
    if labels.max(initial=-1) >= model.num_classes:
        raise ExamplesError(
            f"an example is of class {labels.max()}, the model has classes 0 to "
            f"{model.num_classes - 1}; {_likely(labels, model.num_classes)}"
        )


def _likely(labels: np.ndarray, classes: int) -> str:
    """What is wrong with labels of classes that a network lacks, in words."""
    known = labels[labels >= 0]
    if (known.min(), known.max()) == (1, classes):
        return "they begin with class 1: number them from class 0"
    return "are these the examples of another model?"
