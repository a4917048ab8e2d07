"""Windows: a free pattern under a given mask, at one place of the picture.

    x -> (1 - mask) * x + mask * pattern,  the same pixels in every picture

Reference:
  Brown et al., Adversarial Patch, https://arxiv.org/abs/1712.09665, 2017.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from jaxtroj.pytrees import pytree
from jaxtroj.triggers.mask import SHARE, FreeMask, mask_facts, mask_panels, stamp
from jaxtroj.triggers.trigger import Offset, Shape


@pytree
@dataclass(frozen=True)
class Window:
    """`mask [..., h, w, 1]`, 1 inside and 0 outside, and `pattern [..., h, w, c]` in [0, 1].

    It stays where it is, whatever the offsets.
    """

    mask: jax.Array
    pattern: jax.Array

    kind: ClassVar[str] = "window"
    unit: ClassVar[str] = SHARE

    def drawn(self, shape: Shape, offset: Offset) -> FreeMask:
        """See `Drawn`."""
        return FreeMask(self.mask, self.pattern)

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`."""
        return stamp(images, FreeMask(self.mask, self.pattern))

    def size(self, shape: Shape) -> jax.Array:
        """Mean of the mask."""
        return self.mask.mean(axis=(-3, -2, -1))

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """See `mask_panels`."""
        return mask_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """See `mask_facts`."""
        return mask_facts(self, shape, offset)
