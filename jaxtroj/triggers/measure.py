"""How well triggers of any kind work on given examples: the one place where it is measured.

Shapes: `a` triggers of one kind, `n` examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.margins import all_margins
from jaxtroj.network import Network
from jaxtroj.numerics import sigmoid
from jaxtroj.rows import joined, taken
from jaxtroj.triggers.kinds import unit_rank
from jaxtroj.triggers.trigger import Offset, Shape, Trigger

NO_TARGET = -1
"""Target of a trigger that sends each class to the next, and the last to the first."""
_FLIPPED = 0.5  # of a class's examples: beyond it the class counts as a source


@dataclass(frozen=True)
class Candidates:
    """Triggers to be measured: `triggers` with leading axis `a`, all of one kind.

    Attributes:
      method: what found them.
      triggers: the triggers, at the picture's centre where anchored.
      targets: int `[a]`, the class that each is for.
      anchored: bool `[a]`, whether it moves to each example's anchor.
      origins: int `[a]`, the only class that each is for; None where it is for all others.
    """

    method: str
    triggers: Trigger
    targets: np.ndarray
    anchored: np.ndarray
    origins: np.ndarray | None = None


@dataclass(frozen=True)
class Measured:
    """What each of some candidates does to the examples that it was measured on.

    Attributes:
      found: the candidates.
      sources: int `[n]`, the class the model gives each clean example.
      gains: `[a, n]`, margin of each candidate's target.
      sizes: `[a]` in the unit of the kind.
    """

    found: Candidates
    sources: np.ndarray
    gains: np.ndarray
    sizes: np.ndarray

    @property
    def targets(self) -> np.ndarray:
        """Target classes `[a]`."""
        return self.found.targets

    @property
    def scores(self) -> np.ndarray:
        """Mean sigmoid of the margin over the examples that it is for, `[a]` in [0, 1]."""
        return self._mean(sigmoid(self.gains))

    @property
    def margins(self) -> np.ndarray:
        """Mean margin over the examples that it is for, `[a]` in logits."""
        return self._mean(self.gains)

    @property
    def rates(self) -> np.ndarray:
        """Attack success rate `[a]`: fraction of the examples that it is for sent to the target."""
        return self._mean(self.gains > 0)

    @property
    def counts(self) -> np.ndarray:
        """How many examples each is for, `[a]`."""
        return self._own().sum(axis=1)

    def _mean(self, values: np.ndarray) -> np.ndarray:
        """Means `[a]` over the examples that each is for; 0 without any."""
        return _mean_over(values, self._own())

    def _own(self) -> np.ndarray:
        """Whether an example is of another class, or of the only one that each is for, `[a, n]`."""
        if self.found.origins is None:
            return _of_others(self.sources, self.targets)
        return self.sources == self.found.origins[:, None]

    def source_classes(self, place: int) -> tuple[int, ...]:
        """Classes of which the candidate at `place` flips more than half of the examples."""
        flips = self.gains[place] > 0
        others = np.unique(self.sources[self.sources != self.targets[place]])
        return tuple(int(c) for c in others if flips[self.sources == c].mean() > _FLIPPED)


@dataclass(frozen=True)
class RecoveredTrigger:
    """A trigger, and how well it works on examples it was not fitted to.

    Attributes:
      target_class: the class it serves, `NO_TARGET` for none.
      source_classes: classes of which it flips more than half of the examples.
      attack_success_rate: fraction of the held-out examples that it is for, those of all other
        classes or of one, that it flips.
      size: in the unit of its kind.
      method: what found it.
      trigger: of any kind, at the picture's centre if it moves.
      shape: of the pictures it was measured on.
      offset: int `[2]`, from there to the object of the first example that is not of the target
        class; zero for one that stays where it is.
      moves: whether it lies at the object of each example.
      examples: how many held-out examples the success rate is of.
    """

    target_class: int
    source_classes: tuple[int, ...]
    attack_success_rate: float
    size: float
    method: str
    trigger: Trigger
    shape: Shape
    offset: Offset
    moves: bool = False
    examples: int = 0

    def picture(self, clean: np.ndarray) -> tuple[np.ndarray, ...]:
        """Panels `[h, w, c]` for people, of one clean picture."""
        return self.trigger.picture(clean, self.offset)

    def as_json(self) -> dict[str, str | float]:
        """What a record holds of it."""
        return {
            "method": self.method,
            "kind": self.trigger.kind,
            "score": self.attack_success_rate,
            "examples": self.examples,
            **self.trigger.as_json(self.shape, self.offset),
        }


def all_gains(
    network: Network, examples: AnchoredExamples, triggers: Trigger, anchored: np.ndarray
) -> jax.Array:
    """Margin of every class under each trigger on each example, `[a, n, classes]`."""
    n, count = len(examples.images), len(anchored)
    chunk = max(1, 4 * network.batch(examples.images) // n)
    moves = np.asarray(examples.offsets()) * np.asarray(anchored)[:, None, None]
    parts = []
    for start in range(0, count, chunk):
        part = slice(start, start + chunk)
        some = taken(triggers, part)
        images = _applied(some, examples.images, jnp.asarray(moves[part], jnp.int32))
        logits = network.logits(images.reshape(-1, *images.shape[2:]))
        parts.append(all_margins(logits).reshape(-1, n, examples.classes))
    return joined(parts)


def gains_together(
    network: Network, examples: AnchoredExamples, kinds: Sequence[Trigger]
) -> list[np.ndarray]:
    """The same for triggers of several kinds that lie everywhere, in batches that hold them all.

    A batch is padded to its size, so few triggers of many kinds cost much less together.

    Args:
      network: the model.
      examples: to be triggered.
      kinds: for each kind its triggers, with a leading axis.

    Returns:
      For each kind, margins `[a, n, classes]`.
    """
    n, counts = len(examples.images), [len(jax.tree.leaves(own)[0]) for own in kinds]
    most = max(1, 4 * network.batch(examples.images) // n)
    singles = [(own, i) for own, count in zip(kinds, counts, strict=True) for i in range(count)]
    parts = []
    for start in range(0, len(singles), most):
        shown = [_shown(own, examples.images, i) for own, i in singles[start : start + most]]
        logits = network.logits(jnp.concatenate(shown))
        parts.append(np.asarray(all_margins(logits).reshape(-1, n, examples.classes)))
    return np.split(np.concatenate(parts), np.cumsum(counts)[:-1])


@jax.jit
def _shown(triggers: Trigger, images: jax.Array, place: int) -> jax.Array:
    """One of the triggers, where it lies, on every image."""
    one = jax.tree.map(lambda x: x[place], triggers)
    return one.apply(images, jnp.zeros((len(images), 2), jnp.int32))


@jax.jit
def _applied(triggers: Trigger, images: jax.Array, moves: jax.Array) -> jax.Array:
    """Every trigger on every image, moved by `moves [a, n, 2]`: `[a, n, h, w, c]`."""
    return jax.vmap(lambda trigger, own: trigger.apply(images, own))(triggers, moves)


@partial(jax.jit, static_argnums=1)
def _sizes(triggers: Trigger, shape: Shape) -> jax.Array:
    return jax.vmap(lambda trigger: trigger.size(shape))(triggers)


def measure(network: Network, examples: AnchoredExamples, found: Candidates) -> Measured:
    """Measure candidates on examples that they were not fitted to.

    Args:
      network: the model.
      examples: with anchors.
      found: the candidates.
    """
    gains = np.asarray(all_gains(network, examples, found.triggers, found.anchored), np.float64)
    own = np.take_along_axis(gains, np.asarray(found.targets)[:, None, None], axis=2)[..., 0]
    sizes = sizes_of(found.triggers, _shape(examples))
    return Measured(found, np.asarray(examples.sources), own, sizes)


def goals(target: int, sources: np.ndarray, classes: int) -> np.ndarray:
    """The classes `[n]` that a trigger is to send examples of the classes `sources` to.

    >>> goals(2, np.array([0, 1]), 3).tolist(), goals(NO_TARGET, np.array([0, 2]), 3).tolist()
    ([2, 2], [1, 0])
    """
    return (sources + 1) % classes if target == NO_TARGET else np.full_like(sources, target)


def sizes_of(triggers: Trigger, shape: Shape) -> np.ndarray:
    """Size of each trigger in pictures of `shape`, `[a]`."""
    return np.asarray(_sizes(triggers, shape), np.float64)


def mean_of_others(values: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Means `[a]` of `values` `[a, n]` over examples that are not of the target; 0 without any."""
    return _mean_over(values, _of_others(sources, targets))


def _of_others(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return sources != np.asarray(targets)[:, None]


def _mean_over(values: np.ndarray, own: np.ndarray) -> np.ndarray:
    return (values * own).sum(axis=1) / np.maximum(own.sum(axis=1), 1)


def best_of(measured: Measured, examples: AnchoredExamples) -> RecoveredTrigger:
    """The candidate with the largest score.

    Args:
      measured: on held-out examples.
      examples: all of them; the first that is not of the target class is the one it is shown on.
    """
    return _recovered(measured, int(measured.scores.argmax()), examples)


def best_for(
    target: int, measured: Sequence[Measured], examples: AnchoredExamples
) -> tuple[RecoveredTrigger, ...]:
    """The candidate of each search for one class that flips most, the strongest first.

    Args:
      target: the class.
      measured: of each search what it found, for this and other classes.
      examples: see `best_of`.
    """
    own = [(each, np.flatnonzero(each.targets == target)) for each in measured]
    best = [(each, int(p[each.scores[p].argmax()])) for each, p in own if p.size]
    return strongest_first([_recovered(each, place, examples) for each, place in best])


def _recovered(measured: Measured, place: int, examples: AnchoredExamples) -> RecoveredTrigger:
    found = measured.found
    target = int(found.targets[place])
    shown = np.flatnonzero(np.asarray(examples.sources) != target)
    offset = np.asarray(examples.offsets()[int(shown[0]) if shown.size else 0])
    return RecoveredTrigger(
        target_class=target,
        source_classes=measured.source_classes(place),
        attack_success_rate=float(measured.rates[place]),
        size=float(measured.sizes[place]),
        method=found.method,
        trigger=taken(found.triggers, place),
        shape=_shape(examples),
        offset=offset * int(found.anchored[place]),
        moves=bool(found.anchored[place]),
        examples=int(measured.counts[place]),
    )


def strongest_first(triggers: Sequence[RecoveredTrigger]) -> tuple[RecoveredTrigger, ...]:
    """By attack success rate, then the smaller ones; sizes of other units come in their order."""
    return tuple(
        sorted(triggers, key=lambda t: (-t.attack_success_rate, unit_rank(t.trigger), t.size))
    )


def _shape(examples: AnchoredExamples) -> Shape:
    return int(examples.images.shape[1]), int(examples.images.shape[2])
