"""Size of kinds that change the colours of all pixels: how far they move them, root mean square."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.triggers.trigger import Shape, Trigger

CHANGE = "root mean square change"
"""Unit of these kinds, of pixel values in [0, 1]."""

# Powers of the plastic number's reciprocal: numbered points fill square and cube evenly.
_STEPS = 1.2207440846057596 ** -np.arange(1.0, 4.0)


def change_of(trigger: Trigger, shape: Shape, channels: int) -> jax.Array:
    """Root mean square change of a picture of `shape` whose colours fill the cube evenly."""
    numbers = np.arange(1, shape[0] * shape[1] + 1)[:, None]
    colours = jnp.asarray((numbers * _STEPS[:channels]) % 1.0, jnp.float32)
    clean = colours.reshape(1, *shape, channels)
    changed = trigger.apply(clean, jnp.zeros((1, 2), jnp.int32))
    # Never the root of zero: its gradient is not finite.
    return jnp.sqrt(jnp.square(changed - clean).mean() + 1e-12)
