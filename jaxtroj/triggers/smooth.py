"""Smooth additive patterns: a coarse grid of values, interpolated and added to the picture.

    x -> clip(x + linear(grid), 0, 1)

It is what a search for sinusoids and other smooth patterns finds: it stands for every wave whose
quarter period is not much shorter than the distance of grid points.

Reference:
  Moosavi-Dezfooli et al., Universal adversarial perturbations, https://arxiv.org/abs/1610.08401:
  one perturbation for all pictures. Differs: smooth.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.change import CHANGE
from jaxtroj.triggers.fields import linear
from jaxtroj.triggers.trigger import Offset, Shape, difference_panels


@pytree
@dataclass(frozen=True)
class Smooth:
    """`grid [..., k, l, c]`: what is added, in [-1, 1]; its corners lie on those of the picture."""

    grid: jax.Array

    kind: ClassVar[str] = "smooth"
    unit: ClassVar[str] = CHANGE

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`; it lies everywhere, whatever the offsets."""
        pattern = linear(self.grid, (images.shape[1], images.shape[2])).astype(images.dtype)
        return jnp.clip(images + pattern, 0.0, 1.0)

    def size(self, shape: Shape) -> jax.Array:
        """Root mean square of the pattern, where nothing is clipped."""
        return jnp.sqrt(jnp.square(linear(self.grid, shape)).mean() + 1e-12)

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """Clean, triggered, difference."""
        return difference_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """The largest value added, and the root mean square."""
        largest = float(jnp.abs(self.grid).max())
        return {"largest": round(largest, 4), "rms": round(float(self.size(shape)), 4)}
