"""Blends: the whole picture, at one weight, with a pattern.

    x -> (1 - weight) * x + weight * pattern

Reference:
  Chen et al., Targeted Backdoor Attacks on Deep Learning Systems Using Data Poisoning,
  https://arxiv.org/abs/1712.05526, 2017.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.mask import SHARE, FreeMask, mask_facts, mask_panels, stamp
from jaxtroj.triggers.trigger import Offset, Shape


@pytree
@dataclass(frozen=True)
class Blend:
    """`weight [...]` and `pattern [..., h, w, c]`, both in [0, 1]; it lies everywhere."""

    weight: jax.Array
    pattern: jax.Array

    kind: ClassVar[str] = "blend"
    unit: ClassVar[str] = SHARE

    def drawn(self, shape: Shape, offset: Offset) -> FreeMask:
        """See `Drawn`: the mask is the weight in every pixel."""
        return FreeMask(jnp.broadcast_to(_everywhere(self.weight), (*shape, 1)), self.pattern)

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`."""
        return stamp(images, FreeMask(_everywhere(self.weight), self.pattern))

    def size(self, shape: Shape) -> jax.Array:
        """The weight, which is the mean of the mask."""
        return self.weight

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """See `mask_panels`."""
        return mask_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """See `mask_facts`."""
        return mask_facts(self, shape, offset)


def _everywhere(weight: jax.Array) -> jax.Array:
    """A mask `[1, 1, 1]` that is broadcast over all pixels."""
    return jnp.asarray(weight)[None, None, None]
