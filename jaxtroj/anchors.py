"""Examples as the kernels take them: with the class the model gives each, and where its object is.

Round 0 and its siblings put the trigger on the object, and the object anywhere in the picture. A
patch tried at one fixed place would miss it in most examples; one input gradient per example finds
it.
"""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.errors import EvidenceError
from jaxtroj.label_shift import LabelShift, label_shift
from jaxtroj.margins import all_margins
from jaxtroj.network import Network, finite_or_zero
from jaxtroj.rounds.examples import Examples
from jaxtroj.rounds.turns import MANY_CLASSES, in_turn
from jaxtroj.rows import taken

# Deviation of the blur over the saliency map, as a share of the picture's side.
_BLUR = 0.08
# A small step of all pixels; how many examples take it, and how many tell at least.
_STEP, _STEPPED, _LEAST_STEPPED = 2 / 255, 10, 5
# Of the examples that gradients must lead where they point; by chance 6 of 10 or fewer do in five
# of six networks.
_LEAST_LED = 0.65
# Beyond this, more examples of a stage do not make its evidence better, only dearer.
_MOST = 30
_FEW = 5  # classes, see `counted_classes`


@dataclass(frozen=True)
class Answered:
    """Examples that a stage asked the model about, without anchors.

    Attributes:
      images: `[n, h, w, c]` in [0, 1].
      labels: int `[n]`, -1 where the class is not known.
      logits: `[n, classes]`.
    """

    images: np.ndarray
    labels: np.ndarray
    logits: np.ndarray

    @property
    def labelled(self) -> int:
        """Number of labelled examples."""
        return int((self.labels >= 0).sum())

    @property
    def accuracy(self) -> float:
        """Fraction of labelled examples classified as labelled; 1 when none is labelled."""
        return _accuracy(self.logits.argmax(axis=-1), self.labels)

    @property
    def shift(self) -> LabelShift | None:
        """By how much all labels are off; None where they are not."""
        return label_shift(self.logits.argmax(axis=-1), self.labels)


@dataclass(frozen=True)
class AnchoredExamples:
    """Examples in an order that goes through the classes in turn: 0, 1, 2, 0, 1, 2, ...

    Attributes:
      images: `[n, h, w, c]` in [0, 1].
      anchors: `[n, 2]` rows and columns of the object, pixels.
      sources: int `[n]`, the class the model gives the clean image.
      logits: `[n, classes]` of the clean images.
      accuracy: fraction of labelled examples classified as labelled; 1 when none is labelled.
      labelled: number of labelled examples.
      gradient: largest size of a pixel's gradient; NaN where none was taken.
      led: share of the examples whose margin is larger after a small step along its gradient than
        after one against it; where fewer than 5 have a gradient that is not 0, of all whose
        gradient is finite; NaN of fewer than 5 of them.
      shift: by how much all labels are off; None where they are not.
      not_finite: share of the examples whose gradient is infinite or no number somewhere; it counts
        0 there, in `gradient` and `led` and in every search.
    """

    images: jax.Array
    anchors: jax.Array
    sources: jax.Array
    logits: jax.Array
    accuracy: float
    labelled: int = 0
    gradient: float = math.nan
    led: float = math.nan
    shift: LabelShift | None = None
    not_finite: float = 0.0

    @property
    def is_led(self) -> bool:
        """Whether answers move as gradients say, which searches by gradients rest on.

        Of a network that masks them they do not: it is sound, and looks clean to such searches.

        Reference:
          Athalye et al., Obfuscated Gradients Give a False Sense of Security,
          https://arxiv.org/abs/1802.00420, 2018.
        """
        return self.gradient != 0 and not self.led < _LEAST_LED

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.logits.shape[-1]

    def first(self, count: int) -> "AnchoredExamples":
        """The first `count` examples."""
        return self._cut(slice(0, count))

    def spread(self, per_class: int) -> "AnchoredExamples":
        """So many examples for each class; of many classes fewer, see `spread_count`."""
        return self.first(spread_count(per_class, self.classes))

    def fitted(self, per_class: int) -> int:
        """How many of them triggers are fitted to, see `fitted_count`."""
        return fitted_count(per_class, self.classes, len(self.images))

    def after(self, count: int) -> "AnchoredExamples":
        """The examples after the first `count`, to measure on; all of them when none is left."""
        return self._cut(slice(count if count < len(self.images) else 0, None))

    def at(self, places: np.ndarray) -> "AnchoredExamples":
        """The examples at these places."""
        return self._cut(places)

    def _cut(self, cut: slice | np.ndarray) -> "AnchoredExamples":
        every = (self.images, self.anchors, self.sources, self.logits)
        images, anchors, sources, logits = taken(every, cut)
        return replace(self, images=images, anchors=anchors, sources=sources, logits=logits)

    def offsets(self) -> jax.Array:
        """Whole pixels `[n, 2]` from the picture's centre to each anchor."""
        centre = np.asarray(self.images.shape[1:3]) // 2
        return jnp.asarray((np.asarray(self.anchors) - centre).astype(np.int32))


def spread_count(per_class: int, classes: int) -> int:
    """How many examples `AnchoredExamples.spread` takes at most: of very many classes not each one.

    >>> spread_count(2, 10), spread_count(2, 20), spread_count(2, 40), spread_count(2, 1000)
    (20, 30, 40, 30)
    >>> spread_count(2, 5), spread_count(2, 2)
    (10, 16)
    """
    counted = counted_classes(classes)
    return min(per_class * counted, max(_MOST, counted))


def fitted_count(per_class: int, classes: int, given: int) -> int:
    """How many of the examples given triggers are fitted to: of few classes half of them at most.

    >>> fitted_count(2, 2, 40), fitted_count(2, 2, 20), fitted_count(2, 2, 6), fitted_count(2, 5, 6)
    (16, 10, 4, 10)
    """
    count = spread_count(per_class, classes)
    return min(count, max(per_class * classes, given // 2)) if classes < _FEW else count


def for_few(count: int, classes: int) -> int:
    """How many examples to take where a network of five classes or more gets `count`.

    >>> [for_few(10, classes) for classes in (2, 3, 4, 5, 40)]
    [16, 12, 12, 10, 10]
    """
    return -(-count * counted_classes(classes) // _FEW) if classes < _FEW else count


def counted_classes(classes: int) -> int:
    """As how many classes those of a network count where examples of each are taken.

    A trigger is fitted to and measured on examples that are not of its target. Of two classes these
    are half of all, and a few pictures follow any small perturbation by chance: so networks of few
    classes get as many of these as five classes would.

    >>> [counted_classes(classes) for classes in (2, 3, 4, 5, 6)]
    [8, 6, 6, 5, 6]
    >>> counted_classes(44), counted_classes(45), counted_classes(1000)
    (44, 30, 30)
    """
    if 1 < classes < _FEW:
        return -(-(_FEW - 1) * classes // (classes - 1))
    return classes if classes <= MANY_CLASSES else _MOST


def anchor(network: Network, examples: Examples, limit: int) -> AnchoredExamples:
    """Take `limit` examples, spread over the classes, and find where the object is in each.

    Raises:
      EvidenceError: the model's logits are not finite on clean examples.
    """
    chosen = in_turn(examples.labels, limit)
    images, labels = jnp.asarray(examples.images[chosen]), examples.labels[chosen]
    given, logits = network.margin_gradients(images)
    gradients = finite_or_zero(given)
    if not bool(jnp.isfinite(logits).all()):
        raise EvidenceError(
            "the model's logits are not finite on its own clean examples;"
            " expected a trained network"
        )
    sources = logits.argmax(axis=-1)
    return AnchoredExamples(
        images,
        _peaks(gradients),
        sources,
        logits,
        _accuracy(np.asarray(sources), labels),
        labelled=int((labels >= 0).sum()),
        gradient=float(jnp.abs(gradients).max()),
        led=_led(network, images[:_STEPPED], given[:_STEPPED], np.asarray(sources)[:_STEPPED]),
        shift=label_shift(np.asarray(sources), labels),
        not_finite=float((~jnp.isfinite(given)).any(axis=(1, 2, 3)).mean()),
    )


def _led(network: Network, images: jax.Array, gradients: jax.Array, sources: np.ndarray) -> float:
    """See `AnchoredExamples.led`; `gradients` are those of the margins of `sources`.

    An example whose gradient is 0 counts where most have none: a saturated network moves by none.
    """
    is_number = np.isfinite(np.asarray(gradients)).all(axis=(1, 2, 3))
    step = _STEP * np.sign(np.asarray(finite_or_zero(gradients)))
    can_step = step.any(axis=(1, 2, 3))
    told = int((can_step if can_step.sum() >= _LEAST_STEPPED else is_number).sum())
    if told < _LEAST_STEPPED:
        return math.nan
    shown, step, own = np.asarray(images)[can_step], step[can_step], sources[can_step]
    if not can_step.any():
        return 0.0
    stepped = np.concatenate([shown + step, shown - step]).clip(0, 1).astype(np.float32)
    margins = np.asarray(all_margins(network.logits(stepped)))
    along, against = np.split(margins[np.arange(len(margins)), np.tile(own, 2)], 2)
    return float((along > against).sum() / told)


def _accuracy(said: np.ndarray, labels: np.ndarray) -> float:
    """Fraction of the examples of a known class that are classified so; 1 where there is none."""
    known = labels >= 0
    return float((said == labels)[known].mean()) if known.any() else 1.0


@jax.jit
def _peaks(gradients: jax.Array) -> jax.Array:
    """Rows and columns `[n, 2]` where the blurred size of the gradient is largest."""
    saliency = _blur(jnp.abs(gradients).sum(axis=-1))
    n, _, width = saliency.shape
    peak = saliency.reshape(n, -1).argmax(axis=-1)
    return jnp.stack([peak // width, peak % width], axis=-1).astype(gradients.dtype)


def _blur(x: jax.Array) -> jax.Array:
    """Gaussian blur of `[n, h, w]`: two matrix products."""
    deviation = _BLUR * min(x.shape[1:])

    def kernel(size: int) -> jax.Array:
        distance = jnp.arange(size)[:, None] - jnp.arange(size)[None, :]
        return jnp.exp(-0.5 * (distance / deviation) ** 2)

    return jnp.einsum("ij,njk,kl->nil", kernel(x.shape[1]), x, kernel(x.shape[2]))
