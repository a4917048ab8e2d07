"""Borders: a frame along the edges, of one colour or with a free pattern.

    x -> (1 - mask) * x + mask * pattern,  mask = clip(width - pixels to the nearest edge, 0, 1)

Reference:
  Brown et al., Adversarial Patch, https://arxiv.org/abs/1712.09665, 2017. Differs: a frame.
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
class Border:
    """`width [...]` in pixels, a part of one covering in part, and `pattern` in [0, 1].

    The pattern is `[..., h, w, c]`, or `[..., 1, 1, c]` for one colour. It stays where it is,
    whatever the offsets.
    """

    width: jax.Array
    pattern: jax.Array

    kind: ClassVar[str] = "border"
    unit: ClassVar[str] = SHARE

    def drawn(self, shape: Shape, offset: Offset) -> FreeMask:
        """See `Drawn`."""
        pattern = jnp.broadcast_to(self.pattern, (*shape, self.pattern.shape[-1]))
        return FreeMask(self._mask(shape), pattern)

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `Trigger.apply`."""
        shape = (images.shape[1], images.shape[2])
        return stamp(images, FreeMask(self._mask(shape).astype(images.dtype), self.pattern))

    def size(self, shape: Shape) -> jax.Array:
        """Mean of the mask."""
        return self._mask(shape).mean()

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """See `mask_panels`."""
        return mask_panels(self, clean, offset)

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """Width in pixels; see `mask_facts`."""
        return {"width": round(float(self.width), 2), **mask_facts(self, shape, offset)}

    def _mask(self, shape: Shape) -> jax.Array:
        rows, columns = (np.minimum(np.arange(s), s - 1 - np.arange(s)) for s in shape)
        nearest = np.minimum(rows[:, None], columns)[..., None]
        return jnp.clip(self.width - nearest.astype(np.float32), 0.0, 1.0)
