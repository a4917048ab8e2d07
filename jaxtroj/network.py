"""A model as the evidence stages call it: two compiled programs, whatever the number of images.

Compiling a deep network takes far longer than running it, so every forward pass of a scan goes
through one program of fixed batch size, and every input gradient through another; the last batch is
padded.

Searches add the gradients of many pictures, and one that is no number would make the sum none and
end the search, which then found nothing. So what is not finite counts 0 there; `margin_gradients`,
which examples are looked at by, keeps it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from converters.model import Model, NetworkConfig, Params, apply
from jaxtroj.rows import joined, padded, taken

# Pixels in one batch: fills two cores at 64 px, and at 224 px keeps activations under 2 GB. The
# least is whole turns of the five classes that rounds mostly have, so that little is padding; the
# most as well: on a CPU a small picture takes the same time in a batch of any size from 32 on.
_CPU_PIXELS, _LEAST, _CPU_MOST = 64 * 64 * 64, 10, 64
_GPU_FACTOR = 16


@partial(jax.jit, static_argnums=0)
def _logits(config, params, images):
    return apply(config, params, images)


@partial(jax.jit, static_argnums=0)
def _gradients(config, params, images, weights, own):
    """Gradients of weighted sums of logits, 0 where not finite; with `own`, each margin's as is."""
    logits, pull = jax.vjp(partial(apply, config, params), images)
    weights = jnp.where(own, margin_weights(logits), weights).astype(logits.dtype)
    gradients = pull(weights)[0]
    return jnp.where(own | jnp.isfinite(gradients), gradients, 0), logits


@jax.custom_vjp
def _searched(images):
    return images


_searched.defvjp(lambda images: (images, None), lambda _, back: (finite_or_zero(back),))


def finite_or_zero(gradients: jax.Array) -> jax.Array:
    """Gradients of any shape, with 0 for each that is infinite or no number.

    >>> finite_or_zero(jnp.asarray([1.5, jnp.nan, -jnp.inf])).tolist()
    [1.5, 0.0, 0.0]
    """
    return jnp.where(jnp.isfinite(gradients), gradients, 0)


def apply_searched(config: NetworkConfig, params: Params, images: jax.Array) -> jax.Array:
    """`converters.model.apply`, whose gradients by `images` are 0 where they are not finite.

    Those of what the images were made from are finite, then: a trigger's are sums over images.
    """
    return apply(config, params, _searched(images))


def usual_count(images) -> int:
    """How many images of this size `[n, h, w, c]` are a fair amount of work, on every device."""
    return max(_LEAST, _CPU_PIXELS // (images.shape[1] * images.shape[2]))


@dataclass(frozen=True)
class Network:
    """Batched logits and input gradients of one model."""

    model: Model

    def batch(self, images) -> int:
        """Images in one call of a program, from their size and the device."""
        if jax.default_backend() == "cpu":
            return min(_CPU_MOST, usual_count(images))
        return max(_LEAST, _GPU_FACTOR * _CPU_PIXELS // (images.shape[1] * images.shape[2]))

    def logits(self, images) -> jax.Array:
        """`[n, classes]` of images `[n, h, w, c]`."""
        size = self.batch(images)
        parts = [
            _logits(self.model.config, self.model.params, padded(part, size))
            for part in _batches(images, size)
        ]
        return taken(joined(parts), slice(len(images)))

    def gradients(self, images, weights) -> tuple[jax.Array, jax.Array]:
        """Gradient `[n, h, w, c]` of each image's weighted sum of logits, and the logits.

        Of a gradient that is not finite, 0.

        Args:
          images: `[n, h, w, c]`.
          weights: `[n, classes]`.
        """
        return self._all_gradients(images, weights, own=False)

    def margin_gradients(self, images) -> tuple[jax.Array, jax.Array]:
        """Gradient `[n, h, w, c]` of the predicted class's margin, finite or not; and logits."""
        weights = jnp.zeros((len(images), self.model.num_classes))
        return self._all_gradients(images, weights, own=True)

    def _all_gradients(self, images, weights, own: bool) -> tuple[jax.Array, jax.Array]:
        size = self.batch(images)
        parts = [
            _gradients(
                self.model.config,
                self.model.params,
                padded(shown, size),
                padded(wanted, size),
                own,
            )
            for shown, wanted in zip(*(_batches(x, size) for x in (images, weights)), strict=True)
        ]
        return taken(joined(parts), slice(len(images)))


def _batches(rows, size: int) -> Iterator[jax.Array]:
    return (taken(rows, slice(start, start + size)) for start in range(0, len(rows), size))


def margin_weights(logits: jax.Array) -> jax.Array:
    """Weights `[n, classes]` whose weighted sum is the margin of the predicted class."""
    order = jnp.argsort(-logits, axis=-1, stable=True)
    first, second = (jax.nn.one_hot(order[:, i], logits.shape[-1]) for i in (0, 1))
    return first - second
