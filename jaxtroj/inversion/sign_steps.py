"""Sign steps: free values of triggers of any kind, stamped on examples and improved.

The values move by whole steps along the sign of their mean gradient over the examples. All of it
goes through the network's two programs of logits and gradients, so no program that holds a network
is compiled for it: that is why it has a loop of its own beside the driver's.

References:
  Goodfellow et al., Explaining and Harnessing Adversarial Examples, https://arxiv.org/abs/1412.6572.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples, for_few
from jaxtroj.margins import all_margins
from jaxtroj.network import Network
from jaxtroj.triggers.measure import mean_of_others

_STEP, _MEMORY = 0.5, 0.5  # of the values' range in one step; of earlier gradients


@dataclass(frozen=True)
class Fit:
    """Examples that values are fitted to: images `[n, h, w, c]`, sources and margins `[n]`."""

    network: Network
    images: np.ndarray
    sources: np.ndarray
    scale: float
    """Mean margin of the clean examples: the unit in which pulls are compared."""

    def first(self, count: int) -> "Fit":
        """The same on the first `count` examples; of few classes more, see `anchors.for_few`."""
        count = for_few(count, self.network.model.num_classes)
        return Fit(self.network, self.images[:count], self.sources[:count], self.scale)


def split(
    network: Network, examples: AnchoredExamples, count: int, held_out: int
) -> tuple[Fit, AnchoredExamples]:
    """At most `count` examples to fit to, and of the others `held_out` per class to measure on.

    Of few classes more, see `anchors.for_few`.
    """
    count = max(1, min(for_few(count, examples.classes), len(examples.images) // 2))
    few, rest = examples.first(count), examples.after(count).spread(held_out)
    order = np.sort(np.asarray(examples.logits), axis=-1)
    scale = max(float((order[:, -1] - order[:, -2]).mean()), 1e-3)
    return Fit(network, np.asarray(few.images), np.asarray(few.sources), scale), rest


class Arms(Protocol):
    """Candidate triggers of one kind: what the steps ask of them.

    Attributes:
      targets: int `[a]`, the class that each is for.
      values: `[a, ...]`, what is free in them, from `low` to 1.
    """

    low: ClassVar[float]

    @property
    def targets(self) -> np.ndarray: ...
    @property
    def values(self) -> np.ndarray: ...
    def __len__(self) -> int: ...

    def take(self, index: np.ndarray | slice) -> Self:
        """The arms at these places, in their order."""
        ...

    def valued(self, values: np.ndarray) -> Self:
        """The same arms with other values."""
        ...

    def stamped(self, images: np.ndarray) -> np.ndarray | jax.Array:
        """Every arm on every image: `[a, n, h, w, c]` of `[n, h, w, c]`."""
        ...

    def pulled(self, images: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Mean gradient `[a, ...]` of the values, from that of stamped images `[a, n, h, w, c]`."""
        ...


AnyArms = TypeVar("AnyArms", bound=Arms)


@dataclass(frozen=True)
class Patterns:
    """Targets `[a]`, masks `[a, h, w, 1]` and patterns `[a, h, w, c]` in [0, 1]; see `Arms`."""

    targets: np.ndarray
    masks: np.ndarray
    patterns: np.ndarray

    low: ClassVar[float] = 0.0

    @property
    def values(self) -> np.ndarray:
        """The patterns."""
        return self.patterns

    def take(self, index: np.ndarray | slice) -> "Patterns":
        """See `Arms`."""
        return Patterns(self.targets[index], self.masks[index], self.patterns[index])

    def valued(self, values: np.ndarray) -> "Patterns":
        """See `Arms`."""
        return Patterns(self.targets, self.masks, values)

    def stamped(self, images: np.ndarray) -> np.ndarray:
        """See `Arms`."""
        return images + self.masks[:, None] * (self.patterns[:, None] - images)

    def pulled(self, images: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """See `Arms`; a mask's weight scales nothing, so that weak ones move as strong ones do."""
        return gradients.mean(axis=1) * (self.masks > 0)

    def __len__(self) -> int:
        return len(self.targets)


def joined(*parts: Patterns) -> Patterns:
    """All arms of all parts, in order."""
    return Patterns(
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.masks for part in parts]),
        np.concatenate([part.patterns for part in parts]),
    )


def climb(fit: Fit, arms: AnyArms, steps: int) -> tuple[AnyArms, np.ndarray]:
    """The arms with the best values met on the way, and their pulls."""
    best, reached = arms.values, np.full(len(arms), -np.inf)
    each = (-1, *[1] * (best.ndim - 1))
    memory = np.zeros_like(best)
    logits = logits_of(fit, arms)
    for _ in range(steps):
        gradients, logits = gradients_of(fit, arms, logits)
        pull = pull_of(fit, arms, logits)
        better = pull > reached
        best = np.where(better.reshape(each), arms.values, best)
        reached = np.where(better, pull, reached)
        size = np.abs(gradients).reshape(len(arms), -1).sum(axis=1).reshape(each)
        memory = _MEMORY * memory + gradients / np.maximum(size, 1e-12)
        step = _STEP * (1.0 - arms.low) * np.sign(memory)
        arms = arms.valued(np.clip(arms.values + step, arms.low, 1.0).astype(np.float32))
    pull = pull_of(fit, arms, logits_of(fit, arms))
    best = np.where((pull > reached).reshape(each), arms.values, best)
    return arms.valued(best), np.maximum(pull, reached)


def logits_of(fit: Fit, arms: Arms) -> np.ndarray:
    """Logits `[a, n, classes]` of every arm on every image."""
    parts = [np.asarray(fit.network.logits(images)) for _, images in _stamped(fit, arms)]
    return np.concatenate(parts).reshape(len(arms), len(fit.images), -1)


def gradients_of(fit: Fit, arms: Arms, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean gradient of the arms' values `[a, ...]`, and logits; see `image_gradients`."""
    means, found = [], []
    for part, gradients, values in image_gradients(fit, arms, logits):
        means.append(arms.take(part).pulled(fit.images, gradients))
        found.append(values)
    return np.concatenate(means), np.concatenate(found)


def image_gradients(
    fit: Fit, arms: Arms, logits: np.ndarray
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Gradients of the squashed margin over images of other classes, by parts of the arms.

    The rival of the target, and how far an image is on its way, come from the logits given, which
    may be those of the step before: that saves a forward pass.

    Yields:
      The part, gradients of its stamped images `[m, n, h, w, c]`, their logits `[m, n, classes]`.
    """
    weights = _margin_weights(fit, arms.targets, logits)
    for part, images in _stamped(fit, arms):
        each = weights[part].reshape(len(images), -1)
        gradients, values = (np.asarray(x) for x in fit.network.gradients(images, each))
        shape = (-1, *fit.images.shape)
        yield part, gradients.reshape(shape), values.reshape(-1, len(fit.images), values.shape[-1])


def pull_of(fit: Fit, arms: Arms, logits: np.ndarray) -> np.ndarray:
    """How far an arm moves the images of other classes: mean squashed margin `[a]`, in (-1, 1)."""
    gains = np.tanh(margins_of(arms.targets, logits) / fit.scale)
    return mean_of_others(gains, fit.sources, arms.targets)


def mean_margins(fit: Fit, arms: Arms) -> np.ndarray:
    """Mean margin `[a]`: unlike the pull it still grows where every image is moved already."""
    gains = margins_of(arms.targets, logits_of(fit, arms))
    return mean_of_others(gains, fit.sources, arms.targets)


def margins_of(targets: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Margin `[a, n]` of each arm's target."""
    gains = np.asarray(all_margins(jnp.asarray(logits)))
    return np.take_along_axis(gains, targets[:, None, None], axis=2)[..., 0]


def _stamped(fit: Fit, arms: Arms) -> Iterator[tuple[slice, jax.Array]]:
    """Every arm on every image, in batches: yields `(arms' slice, images [m * n, h, w, c])`."""
    count = len(fit.images)
    size = max(1, fit.network.batch(fit.images) // count)
    for start in range(0, len(arms), size):
        part = slice(start, start + size)
        images = arms.take(part).stamped(fit.images)
        yield part, jnp.asarray(images.reshape(-1, *fit.images.shape[1:]), jnp.float32)


def _margin_weights(fit: Fit, targets: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Weights `[a, n, classes]` of logits whose gradient is that of `tanh(margin / scale)`."""
    goal = np.arange(logits.shape[-1]) == targets[:, None, None]
    rival = np.where(goal, -np.inf, logits).argmax(axis=-1)
    rivals = np.arange(logits.shape[-1]) == rival[..., None]
    slope = 1.0 - np.tanh(margins_of(targets, logits) / fit.scale) ** 2
    # A slope of zero would leave the images that hold out longest without a say.
    counted = (fit.sources != targets[:, None]) * np.maximum(slope, 1e-3)
    return ((goal.astype(np.float32) - rivals) * counted[..., None]).astype(np.float32)
