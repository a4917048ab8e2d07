"""Triggers that explain what batch norms remember: fitted to the remainder, not to any class.

One arm for each family, all in one batch: a mask and pattern at one place, the same moving about, a
faint smooth pattern, a colour map. Their values take steps of Adam up the cosine with the remainder
(`norm_memory`). No class is asked for, so the cost does not grow with the classes,
and what classes the pictures then go to is a second, independent sign.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxtroj.norm_memory import Memory, Norms
from jaxtroj.triggers.colour_map import ColourMap
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.smooth import Smooth
from jaxtroj.triggers.trigger import Trigger

Pictures = tuple[int, int, int]
_FAINT, _SPREAD = -2.0, 3.0  # log-odds of a mask's weight at the start; its fall to the edges
_REACH = 4  # a moving trigger moves by at most one such part of the picture, each way


class Family(Protocol):
    """Triggers of one kind that are searched together; hashable, since programs are made for it."""

    name: ClassVar[str]
    rate: ClassVar[float]
    moves: ClassVar[bool]

    def start(self, key: jax.Array, pictures: Pictures) -> jax.Array:
        """Values to start from, for pictures `(h, w, c)`."""
        ...

    def trigger(self, values: jax.Array) -> Trigger:
        """The trigger of unbounded values."""
        ...


@dataclass(frozen=True)
class Placed:
    """A mask and a pattern at one place."""

    name: ClassVar[str] = "placed"
    rate: ClassVar[float] = 0.3
    moves: ClassVar[bool] = False

    def start(self, key: jax.Array, pictures: Pictures) -> jax.Array:
        """See `Family`."""
        values = 0.1 * jax.random.normal(key, (*pictures[:2], pictures[2] + 1), jnp.float32)
        return values.at[..., 0].set(_FAINT)

    def trigger(self, values: jax.Array) -> FreeMask:
        """See `Family`."""
        return FreeMask(jax.nn.sigmoid(values[..., :1]), jax.nn.sigmoid(values[..., 1:]))


@dataclass(frozen=True)
class Moving(Placed):
    """A mask and a pattern that lie elsewhere in each picture, about its middle."""

    name: ClassVar[str] = "moving"
    moves: ClassVar[bool] = True

    def start(self, key: jax.Array, pictures: Pictures) -> jax.Array:
        """See `Family`."""
        rows, columns = (np.linspace(-1, 1, size) for size in pictures[:2])
        far = rows[:, None] ** 2 + columns**2
        weight = jnp.asarray(0.5 - 4 * _SPREAD * far, jnp.float32)
        return super().start(key, pictures).at[..., 0].set(weight)


@dataclass(frozen=True)
class Faint:
    """A smooth pattern that is added, at most `most`."""

    points: int

    name: ClassVar[str] = "faint"
    rate: ClassVar[float] = 0.3
    moves: ClassVar[bool] = False
    most: ClassVar[float] = 0.2

    def start(self, key: jax.Array, pictures: Pictures) -> jax.Array:
        """See `Family`."""
        shape = (min(self.points, pictures[0]), min(self.points, pictures[1]), pictures[2])
        return 0.02 * jax.random.normal(key, shape, jnp.float32)

    def trigger(self, values: jax.Array) -> Smooth:
        """See `Family`."""
        return Smooth(self.most * jnp.tanh(values))


@dataclass(frozen=True)
class Colours:
    """A colour map with a vignette; a bank says where it starts."""

    name: ClassVar[str] = "colours"
    rate: ClassVar[float] = 0.05
    moves: ClassVar[bool] = False

    def start(self, key: jax.Array, pictures: Pictures) -> jax.Array:
        """See `Family`: no change."""
        channels = pictures[2]
        return jnp.zeros((channels + 1, channels + 1), jnp.float32)

    def trigger(self, values: jax.Array) -> ColourMap:
        """See `Family`; the last row's first value is the vignette."""
        channels = values.shape[-1] - 1
        still = jnp.eye(channels, channels + 1, dtype=values.dtype)
        return ColourMap(still + values[..., :-1, :], jnp.clip(values[..., -1, 0], 0.0, 1.0))

    def values(self, start: ColourMap) -> jax.Array:
        """Values of one colour map."""
        channels = start.matrix.shape[-2]
        matrix = start.matrix - jnp.eye(channels, channels + 1, dtype=start.matrix.dtype)
        last = jnp.zeros((1, channels + 1), matrix.dtype).at[0, 0].set(start.vignette)
        return jnp.concatenate([matrix, last])


Values = tuple[jax.Array, ...]


@partial(jax.jit, static_argnums=0)
def triggers_of(families: tuple[Family, ...], values: Values) -> tuple[Trigger, ...]:
    """The trigger of each family's values."""
    return tuple(f.trigger(own) for f, own in zip(families, values, strict=True))


def offsets_for(key: jax.Array, images: np.ndarray) -> np.ndarray:
    """Where a moving trigger lies in each image `[n, h, w, c]`: int `[n, 2]` from the middle."""
    reach = np.array(images.shape[1:3]) // _REACH
    lots = jax.random.uniform(key, (len(images), 2), minval=-1.0, maxval=1.0)
    return np.asarray(jnp.round(lots * reach), np.int32)


def climb(
    norms: Norms,
    memory: Memory,
    images: np.ndarray,
    offsets: np.ndarray,
    families: tuple[Family, ...],
    values: Values,
    steps: int,
) -> Values:
    """The values of each family after some steps up the match.

    Args:
      norms: the network's.
      memory: with the mean moments of these images as its centre.
      images: clean ones `[n, h, w, c]`.
      offsets: of moving triggers, int `[n, 2]`.
      families, values: to start from.
      steps: how many.
    """
    state = _adam.init(values)
    for _ in range(steps):
        stamped = stamped_by(families, values, images, offsets)
        gradients = norms.pulled(memory, stamped)[1]
        values, state = _stepped(families, values, images, offsets, gradients, state)
    return values


_adam = optax.scale_by_adam()


@partial(jax.jit, static_argnums=0)
def stamped_by(families: tuple[Family, ...], values: Values, images, offsets) -> jax.Array:
    """Every family's trigger on every image: `[a, n, h, w, c]`."""
    shown = [
        family.trigger(own).apply(images, offsets * int(family.moves))
        for family, own in zip(families, values, strict=True)
    ]
    return jnp.clip(jnp.stack(shown), 0.0, 1.0)


@partial(jax.jit, static_argnums=0)
def _stepped(families: tuple[Family, ...], values: Values, images, offsets, gradients, state):
    pull = jax.vjp(lambda every: stamped_by(families, every, images, offsets), values)[1]
    found, state = _adam.update(pull(gradients)[0], state)
    steps: list[jax.Array] = jax.tree.leaves(found)
    moved = [
        own + family.rate * step for family, own, step in zip(families, values, steps, strict=True)
    ]
    return tuple(moved), state
