"""What every kind of trigger offers: anything that turns clean pictures into triggered ones.

A kind is a frozen dataclass, registered as a JAX pytree: leaves with leading axes are many triggers
of the kind, and `jax.vmap` runs over them. Shapes: `n` images of `h` x `w` pixels and `c` channels,
values in [0, 1]; offsets are whole pixels (rows, columns) from the picture's centre.
"""

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

Shape = tuple[int, int]
"""Height and width of a picture, in pixels."""
Offset = jax.Array | np.ndarray
"""Whole pixels `[2]` (rows, columns) from the picture's centre, int."""


class Trigger(Protocol):
    """One trigger; a kind is one file beside this one and one row in `kinds.KINDS`.

    Attributes:
      kind: name of the kind, as it stands in records.
      unit: of `size`; sizes of one unit are compared.
    """

    kind: ClassVar[str]
    unit: ClassVar[str]

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """The triggered images, `[n, h, w, c]` in [0, 1].

        Args:
          images: clean ones, `[n, h, w, c]` in [0, 1].
          offsets: int `[n, 2]`, how far the trigger moves in each image. A kind that lies at one
            place, or everywhere, does not read it.
        """
        ...

    def size(self, shape: Shape) -> jax.Array:
        """How much it changes, in `unit`, in pictures of `shape`; the smaller the stealthier."""
        ...

    def picture(self, clean: np.ndarray, offset: Offset) -> tuple[np.ndarray, ...]:
        """Panels for people, each `[h, w, c]` in [0, 1], of one clean picture."""
        ...

    def as_json(self, shape: Shape, offset: Offset) -> dict[str, Any]:
        """Its numbers for a record, JSON values by name, as it lies in a picture of `shape`."""
        ...


@jax.jit
def applied(trigger: Trigger, images: jax.Array, offsets: jax.Array) -> jax.Array:
    """`Trigger.apply` as one program; operation by operation a kind takes tens of them."""
    return trigger.apply(images, offsets)


def triggered(trigger: Trigger, clean: np.ndarray, offset: Offset) -> np.ndarray:
    """One clean picture `[h, w, c]` with the trigger moved by `offset [2]`."""
    return np.asarray(applied(trigger, jnp.asarray(clean)[None], jnp.asarray(offset)[None])[0])


def difference_panels(
    trigger: Trigger, clean: np.ndarray, offset: Offset
) -> tuple[np.ndarray, ...]:
    """Clean picture, triggered picture, and their difference about grey, its largest value full.

    The picture of a kind that has no mask.
    """
    shown = triggered(trigger, clean, offset)
    difference = shown - clean
    largest = max(float(np.abs(difference).max()), 1e-6)
    return clean, shown, 0.5 + 0.5 * difference / largest
