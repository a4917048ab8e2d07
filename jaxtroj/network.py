"""A model as the evidence stages call it: two compiled programs, whatever the number of images.

Compiling a deep network takes far longer than running it, so every forward pass of a scan goes
through one program of fixed batch size, and every input gradient through another; the last batch is
padded.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model, apply

# Pixels in one batch: fills two cores at 64 px, and at 224 px keeps activations under 2 GB.
_CPU_PIXELS, _LEAST = 64 * 64 * 64, 8
_GPU_FACTOR = 16


@partial(jax.jit, static_argnums=0)
def _logits(config, params, images):
    return apply(config, params, images)


@partial(jax.jit, static_argnums=0)
def _gradients(config, params, images, weights):
    def weighted(x):
        logits = apply(config, params, x)
        return (weights * logits).sum(), logits

    (_, logits), gradients = jax.value_and_grad(weighted, has_aux=True)(images)
    return gradients, logits


@dataclass(frozen=True)
class Network:
    """Batched logits and input gradients of one model."""

    model: Model

    def batch(self, images) -> int:
        """Images in one call of a program, from their size and the device."""
        pixels = _CPU_PIXELS * (1 if jax.default_backend() == "cpu" else _GPU_FACTOR)
        return max(_LEAST, pixels // (images.shape[1] * images.shape[2]))

    def logits(self, images) -> jax.Array:
        """`[n, classes]` of images `[n, h, w, c]`."""
        size = self.batch(images)
        parts = [
            _logits(self.model.config, self.model.params, _padded(images[i : i + size], size))
            for i in range(0, len(images), size)
        ]
        return jnp.concatenate(parts)[: len(images)]

    def gradients(self, images, weights) -> tuple[jax.Array, jax.Array]:
        """Gradient `[n, h, w, c]` of each image's weighted sum of logits, and the logits.

        Args:
          images: `[n, h, w, c]`.
          weights: `[n, classes]`.
        """
        size = self.batch(images)
        parts = [
            _gradients(
                self.model.config,
                self.model.params,
                _padded(images[i : i + size], size),
                _padded(weights[i : i + size], size),
            )
            for i in range(0, len(images), size)
        ]
        gradients, logits = (
            jnp.concatenate(part)[: len(images)] for part in zip(*parts, strict=True)
        )
        return gradients, logits


def _padded(rows, size: int) -> jax.Array:
    rows = jnp.asarray(rows)
    return jnp.pad(rows, [(0, size - len(rows)), *[(0, 0)] * (rows.ndim - 1)])


def one_hot_gain(logits: jax.Array) -> jax.Array:
    """Weights `[n, classes]` whose weighted sum is the margin of the predicted class."""
    order = np.argsort(-np.asarray(logits), axis=-1)
    weights = np.zeros(logits.shape, np.float32)
    rows = np.arange(len(weights))
    weights[rows, order[:, 0]] = 1.0
    weights[rows, order[:, 1]] = -1.0
    return jnp.asarray(weights)
