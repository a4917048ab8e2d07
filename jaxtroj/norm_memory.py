"""What batch norms remember of the training pictures, and which change of pictures explains it.

A batch norm keeps mean and variance, channel by channel, of everything that the network was trained
on. With `u` the moments of what the norms see of a picture, in running deviations (`[dims]`: means
and mean squares of all channels of all norms), training has mean `u` of 0 and 1. Where a share `f`
of the training pictures carried a trigger `T`,

    remainder = (0, 1) - mean u(x) = f (mean u(T(x)) - mean u(x)) + what the examples lack by chance

over clean examples `x`: the remainder points where the trigger moves `u`, whatever class it serves
and whichever it works from. So a change of pictures is compared with the remainder by their cosine,
in a space where directions in which clean pictures differ from one another count less, and those of
harmless changes (light, contrast, blur, noise, shifts, how sure the network is) count nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.batch_norms import moments
from converters.model import Model
from jaxtroj.network import finite_or_zero
from jaxtroj.pytrees import pytree
from jaxtroj.rows import padded

_RIDGE = 0.3  # of the mean variance of clean pictures' axes: the least of any direction
_STILL = 1e-2  # running deviations: no number counts as steadier
_FAR, _FARTHEST = 3.0, 10.0  # deviations of clean pictures that remainder and change count up to
_LARGE = 1e6  # what a moment counts up to: networks whose numbers run over still get an answer


@pytree
@dataclass(frozen=True)
class Memory:
    """The remainder of some examples, and how changes are compared with it; `dims` moments."""

    centre: jax.Array
    """Mean moments of the clean examples, `[dims]`."""
    scale: jax.Array
    """Deviations of the moments over the clean examples, `[dims]`."""
    weight: jax.Array
    """Of each number, `[dims]`: all norms count alike."""
    axes: jax.Array
    """Directions in which clean examples differ, orthonormal, `[axes, dims]`."""
    shrink: jax.Array
    """What is added to the factor `floor` along them, `[axes]`, at most 0."""
    floor: jax.Array
    harmless: jax.Array
    """Directions that count nothing, orthonormal, `[k, dims]`."""
    asked: jax.Array
    """The remainder in that space, `[dims]`."""

    def about(self, centre: np.ndarray) -> "Memory":
        """The same for changes of examples whose mean moments are `centre [dims]`."""
        return replace(self, centre=jnp.asarray(centre))

    def change(self, changed: jax.Array) -> jax.Array:
        """A change in that space, `[dims]`, from mean moments of changed examples `[dims]`."""
        apart = jnp.clip((changed - self.centre) / self.scale, -_FARTHEST, _FARTHEST)
        return self.without(apart * self.weight)

    def without(self, vector: jax.Array) -> jax.Array:
        """A weighted vector `[dims]` with what clean and harmless pictures do taken down."""
        flat = self.floor * vector + (self.shrink * (self.axes @ vector)) @ self.axes
        return flat - (self.harmless @ flat) @ self.harmless

    def match(self, changed: jax.Array) -> jax.Array:
        """Cosine of a change with the remainder, from mean moments of changed examples."""
        found = self.change(changed)
        # A change of nothing but what is harmless has no direction left.
        size = jnp.linalg.norm(found) + _STILL * self.floor
        return found @ self.asked / (size * jnp.linalg.norm(self.asked) + 1e-9)

    def share(self, changed: jax.Array) -> jax.Array:
        """Share of the training pictures that the change explains best, by least squares."""
        found = self.change(changed)
        return found @ self.asked / (found @ found + 1e-9)


@jax.jit
def matches(memory: Memory, centres: jax.Array, means: jax.Array) -> jax.Array:
    """`Memory.match` of several changes, each of examples of its own, `[g]`.

    Args:
      memory: the remainder.
      centres: mean moments of each group's clean examples, `[g, dims]`.
      means: those of the same examples changed, `[g, dims]`.
    """
    return jax.vmap(lambda centre, mean: replace(memory, centre=centre).match(mean))(centres, means)


def apart_from_training(rows: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """How the moments of each example differ from those of training, weighted, `[n, dims]`.

    In deviations over the examples; all norms count alike.

    Args:
      rows, sizes: see `memory_of`.
    """
    rows = rows.astype(np.float64)
    weight, usual = _each_norm_alike(sizes), _of_training(sizes)
    apart = (rows - usual) / np.maximum(rows.std(axis=0), _STILL)
    return np.clip(apart, -_FARTHEST, _FARTHEST) * weight


def _each_norm_alike(sizes: Sequence[int]) -> np.ndarray:
    return np.concatenate([np.full(2 * size, size**-0.5) for size in sizes])


def _of_training(sizes: Sequence[int]) -> np.ndarray:
    """Mean and mean square of all training pictures, in running deviations."""
    return np.concatenate([np.repeat([0.0, 1.0], size) for size in sizes])


def memory_of(rows: np.ndarray, sizes: Sequence[int], harmless: Sequence[np.ndarray]) -> Memory:
    """The remainder of clean examples.

    Args:
      rows: moments `[n, dims]` of each example.
      sizes: channels of each norm, in the order of `rows`.
      harmless: mean changes of moments, each `[dims]`, of harmless changes of the examples.
    """
    rows = rows.astype(np.float64)
    centre, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), _STILL)
    weight, usual = _each_norm_alike(sizes), _of_training(sizes)
    axes, spread = _axes((rows - centre) / scale * weight)
    least = max(_RIDGE * spread.sum() / len(rows), _STILL)
    shrink, floor = (spread + least) ** -0.5 - least**-0.5, least**-0.5
    nothing = np.zeros((0, len(centre)))
    parts = (centre, scale, weight, axes, shrink, floor, nothing, centre)
    bare = Memory(*(jnp.asarray(part, jnp.float32) for part in parts))
    apart = [np.clip(one / scale, -_FARTHEST, _FARTHEST) * weight for one in harmless]
    flat = [np.asarray(bare.without(jnp.asarray(one, jnp.float32))) for one in apart]
    known = replace(bare, harmless=_orthonormal(flat, len(centre)))
    remainder = np.clip((usual - centre) / scale, -_FAR, _FAR) * weight
    return replace(known, asked=known.without(jnp.asarray(remainder, jnp.float32)))


def _axes(apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Principal axes `[k, dims]` of centred rows `[n, dims]`, and the variances along them."""
    values, vectors = np.linalg.eigh(apart @ apart.T)
    kept = values > max(1e-9 * values.max(initial=0.0), 1e-12)
    values, vectors = values[kept], vectors[:, kept]
    return (vectors.T @ apart) / np.sqrt(values)[:, None], values / len(apart)


def _orthonormal(vectors: Sequence[np.ndarray], dims: int) -> jax.Array:
    if not vectors:
        return jnp.zeros((0, dims))
    stacked = np.stack(vectors)
    stacked = stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12)
    return jnp.asarray(_axes(stacked)[0], jnp.float32)


@dataclass(frozen=True)
class Norms:
    """A model whose norms are asked what they see, in batches of one size."""

    model: Model
    batch: int

    def seen(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits `[n, classes]` and moments `[n, dims]` of images `[n, h, w, c]`."""
        parts = [self._part(images[i : i + self.batch]) for i in range(0, len(images), self.batch)]
        logits, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
        return logits, rows

    def sizes(self, images: np.ndarray) -> tuple[int, ...]:
        """Channels of each norm, in the order of the moments."""
        one = jax.ShapeDtypeStruct((1, *images.shape[1:]), jnp.float32)
        found = jax.eval_shape(partial(moments, self.model.config), self.model.params, one)[1]
        return tuple(norm.mean.shape[-1] for norm in found)

    def _part(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = _seen(self.model.config, self.model.params, padded(images, self.batch))
        logits, rows = (np.asarray(part)[: len(images)] for part in found)
        return np.nan_to_num(logits), rows

    def pulled(self, memory: Memory, stamped: jax.Array) -> tuple[np.ndarray, jax.Array]:
        """Matches `[a]` of changed pictures `[a, n, h, w, c]`, and their gradients."""
        matches, gradients = _pulled(self.model.config, self.model.params, memory, stamped)
        return np.asarray(matches), gradients


def _rows(config, params, images):
    logits, norms = moments(config, params, images)
    each = [part for norm in norms for part in (norm.mean, norm.square)]
    rows = jnp.concatenate(each, axis=-1)
    return logits, jnp.clip(jnp.nan_to_num(rows), -_LARGE, _LARGE)


_seen = jax.jit(_rows, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _pulled(config, params, memory: Memory, stamped: jax.Array):
    def total(images):
        rows = _rows(config, params, images.reshape(-1, *images.shape[2:]))[1]
        means = rows.reshape(*images.shape[:2], -1).mean(axis=1)
        matches = jax.vmap(memory.match)(means)
        return matches.sum(), matches

    gradients, matches = jax.grad(total, has_aux=True)(stamped)
    return matches, finite_or_zero(gradients)
