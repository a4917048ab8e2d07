"""Sinusoids: a sine wave added to the picture.

    x -> clip(x + amplitude * sin(2 pi frequency along + phase), 0, 1)
    along = cos(angle) column / width + sin(angle) row / height

At angle 0 and phase 0 it is the trigger of the paper, which runs along the columns.

Reference:
  Barni et al., A New Backdoor Attack in CNNs by Training Set Corruption Without Label Poisoning,
  ICIP 2019, https://arxiv.org/abs/1902.11237.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.change import CHANGE
from jaxtroj.triggers.trigger import Offset, Shape, difference_panels


@pytree
@dataclass(frozen=True)
class Sinusoid:
    """`amplitude [...]` in [0, 1], `frequency [...]` in periods over the picture.

    `angle [...]`, in which it runs, and `phase [...]` are in radians. All channels get the same.
    """

    amplitude: jax.Array
    frequency: jax.Array
    angle: jax.Array
    phase: jax.Array

    kind: ClassVar[str] = "sinusoid"
    unit: ClassVar[str] = CHANGE

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`; it lies everywhere, whatever the offsets."""
        rows, columns = (jnp.arange(s, dtype=images.dtype) / s for s in images.shape[1:3])
        along = jnp.sin(self.angle) * rows[:, None] + jnp.cos(self.angle) * columns
        wave = self.amplitude * jnp.sin(2 * jnp.pi * self.frequency * along + self.phase)
        return jnp.clip(images + wave[None, ..., None].astype(images.dtype), 0.0, 1.0)

    def size(self, shape: Shape) -> jax.Array:
        """Root mean square of the wave over whole periods, where nothing is clipped."""
        return self.amplitude / np.sqrt(2)

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """Clean, triggered, difference."""
        return difference_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """Its four numbers."""
        names = ("amplitude", "frequency", "angle", "phase")
        return {name: round(float(getattr(self, name)), 4) for name in names}
