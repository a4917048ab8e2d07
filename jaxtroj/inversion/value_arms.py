"""Arms for sign steps, of any kind: free values, and what makes triggers of them.

The trigger is applied, and the images' gradients are pulled back through it, by programs that hold
no network: models of all architectures share them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.triggers.border import Border
from jaxtroj.triggers.smooth import Smooth
from jaxtroj.triggers.trigger import Trigger
from jaxtroj.triggers.warp import Warp

_START = 0.1
_STILL = 1e-6  # of a warp without any offset, whose direction is not defined


class Family(Protocol):
    """Triggers of one kind that are searched together; hashable, since programs are made for it."""

    method: ClassVar[str]

    def shape(self, pictures: tuple[int, int, int]) -> tuple[int, ...]:
        """Shape of one trigger's values, for pictures `(h, w, c)`."""
        ...

    def trigger(self, values: jax.Array) -> Trigger:
        """The trigger of values in [-1, 1]; all zero is where the steps start near."""
        ...


@dataclass(frozen=True)
class SmoothFamily:
    """`Smooth`: at most `epsilon` added, on `points` x `points` of a grid."""

    epsilon: float
    points: int

    method: ClassVar[str] = "smooth search"

    def shape(self, pictures: tuple[int, int, int]) -> tuple[int, ...]:
        """See `Family`."""
        return self.points, self.points, pictures[2]

    def trigger(self, values: jax.Array) -> Smooth:
        """See `Family`."""
        return Smooth(self.epsilon * values)


@dataclass(frozen=True)
class WarpFamily:
    """`Warp`: control points moved by at most `most` pixels along an axis."""

    most: float
    points: int

    method: ClassVar[str] = "warp search"

    def shape(self, pictures: tuple[int, int, int]) -> tuple[int, ...]:
        """See `Family`."""
        return self.points, self.points, 2

    def trigger(self, values: jax.Array) -> Warp:
        """See `Family`."""
        return Warp(values, self.most * jnp.maximum(jnp.abs(values).mean(), _STILL))


@dataclass(frozen=True)
class BorderFamily:
    """`Border` of `width` pixels, every pixel of it free."""

    width: float

    method: ClassVar[str] = "border search"

    def shape(self, pictures: tuple[int, int, int]) -> tuple[int, ...]:
        """See `Family`."""
        return pictures

    def trigger(self, values: jax.Array) -> Border:
        """See `Family`."""
        return Border(jnp.asarray(self.width, values.dtype), 0.5 + 0.5 * values)


@dataclass(frozen=True)
class ValueArms:
    """Arms of several families at once, so that one batch holds them; see `sign_steps.Arms`.

    Attributes:
      targets: int `[a]`.
      values: `[a, most]` in [-1, 1], each arm's in one row; what is beyond its own stays 0.
      kinds: int `[a]`, the place of each arm's family.
      families: at those places.
    """

    targets: np.ndarray
    values: np.ndarray
    kinds: np.ndarray
    families: tuple[Family, ...]

    low: ClassVar[float] = -1.0

    def take(self, index: np.ndarray | slice) -> "ValueArms":
        """See `Arms`."""
        rows = (self.targets[index], self.values[index], self.kinds[index])
        return ValueArms(*rows, self.families)

    def valued(self, values: np.ndarray) -> "ValueArms":
        """See `Arms`."""
        return replace(self, values=values)

    def stamped(self, images: np.ndarray) -> np.ndarray:
        """See `Arms`."""
        found = np.empty((len(self), *images.shape), np.float32)
        for family, rows in self._parts():
            found[rows] = _stamped(family, self._own(family, rows, images.shape), images)
        return found

    def pulled(self, images: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """See `Arms`."""
        found = np.zeros_like(self.values)
        for family, rows in self._parts():
            own = self._own(family, rows, images.shape)
            pulled = np.asarray(_pulled(family, own, images, gradients[rows]))
            found[rows, : own[0].size] = pulled.reshape(len(rows), -1)
        return found

    def triggers(self, kind: int, images: np.ndarray) -> tuple[str, Trigger]:
        """The method of one family, and its triggers with one leading axis, for such images."""
        family, rows = self.families[kind], np.flatnonzero(self.kinds == kind)
        return family.method, _triggers(family, self._own(family, rows, images.shape))

    def _own(self, family: Family, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Values of the arms at `rows` in the shape of their family, for images of `shape`."""
        each = family.shape((shape[1], shape[2], shape[3]))
        return self.values[rows, : math.prod(each)].reshape(len(rows), *each)

    def _parts(self) -> Iterator[tuple[Family, np.ndarray]]:
        """Families that have arms, and the places of these."""
        for kind in np.unique(self.kinds):
            yield self.families[int(kind)], np.flatnonzero(self.kinds == kind)

    def __len__(self) -> int:
        return len(self.targets)


def value_arms(
    families: tuple[Family, ...],
    targets: np.ndarray,
    pictures: tuple[int, int, int],
    key: jax.Array,
) -> ValueArms:
    """An arm of every family for every target, families in turn.

    All arms of a family start at the same small random values: at none at all a warp has no side
    to go to.
    """
    sizes = [math.prod(family.shape(pictures)) for family in families]
    starts = np.zeros((len(families), max(sizes)), np.float32)
    for kind, size in enumerate(sizes):
        own = jax.random.fold_in(key, kind)
        starts[kind, :size] = jax.random.uniform(own, (size,), jnp.float32, -_START, _START)
    kinds = np.tile(np.arange(len(families)), len(targets))
    return ValueArms(np.repeat(targets, len(families)), starts[kinds], kinds, families)


@partial(jax.jit, static_argnums=0)
def _triggers(family: Family, values: jax.Array) -> Trigger:
    return jax.vmap(family.trigger)(values)


@partial(jax.jit, static_argnums=0)
def _stamped(family: Family, values: jax.Array, images: jax.Array) -> jax.Array:
    still = jnp.zeros((len(images), 2), jnp.int32)
    return jax.vmap(lambda each: family.trigger(each).apply(images, still))(values)


@partial(jax.jit, static_argnums=0)
def _pulled(family: Family, values: jax.Array, images: jax.Array, gradients: jax.Array):
    """Mean over the images of the values' gradient, `[a, ...]`."""
    _, pull = jax.vjp(lambda every: _stamped(family, every, images), values)
    return pull(gradients)[0] / len(images)
