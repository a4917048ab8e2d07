"""Some clean examples as a network's norms see them, and what training had that these lack."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.norm_memory import Memory, Norms, matches, memory_of

_SOME = 16  # examples that harmless changes are measured on


@dataclass(frozen=True)
class Seen:
    """Pictures `[n, h, w, c]`, logits `[n, classes]`, moments `[n, dims]`, and the remainder."""

    images: np.ndarray
    logits: np.ndarray
    rows: np.ndarray
    memory: Memory

    @property
    def classes(self) -> np.ndarray:
        """The class that the network gives each, `[n]`."""
        return self.logits.argmax(axis=1)

    def matches(self, changed: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Cosine of a change of some of the examples with the remainder, `[g]`; 0 for none.

        Args:
          changed: moments `[n, dims]` of the changed examples.
          groups: which of them belong to each group, bool `[g, n]`.
        """
        counts = groups.sum(axis=1)
        share = groups / np.maximum(counts, 1)[:, None]
        centres, means = (share @ part.astype(np.float64) for part in (self.rows, changed))
        found = matches(self.memory, *(jnp.asarray(x, jnp.float32) for x in (centres, means)))
        return np.where(counts > 0, np.asarray(found), 0.0)


def seen(norms: Norms, images: np.ndarray, key: jax.Array) -> Seen:
    """What the norms see of some examples.

    Args:
      norms: the network's.
      images: clean ones.
      key: of the noise among harmless changes.
    """
    logits, rows = norms.seen(images)
    harmless = _harmless(norms, images, logits, rows, key)
    return Seen(images, logits, rows, memory_of(rows, norms.sizes(images), harmless))


def _harmless(norms: Norms, images, logits, rows, key: jax.Array) -> list[np.ndarray]:
    """Mean change of the moments by each harmless change of pictures, and by being sure."""
    some, plain = images[:_SOME], rows[:_SOME].mean(axis=0)
    changed = np.concatenate([np.clip(one, 0, 1) for one in _changed(some, key)])
    found = norms.seen(changed.astype(np.float32))[1].reshape(-1, len(some), rows.shape[1])
    order = np.sort(logits, axis=1)
    sure = order[:, -1] - order[:, -2] >= np.median(order[:, -1] - order[:, -2])
    among = [rows[sure].mean(axis=0) - rows[~sure].mean(axis=0)] if 0 < sure.mean() < 1 else []
    return [*(found.mean(axis=1) - plain), *among]


def _changed(images: np.ndarray, key: jax.Array) -> list[np.ndarray]:
    mean = images.mean(axis=(1, 2), keepdims=True)
    noise = np.asarray(jax.random.normal(key, images.shape, jax.numpy.float32))
    near = [np.roll(images, move, axis) for axis in (1, 2) for move in (-1, 1)]
    blurred = (images + sum(near)) / 5
    return [
        0.7 * images, 1.3 * images, mean + 0.7 * (images - mean), images**1.4, images**0.7,
        images + 0.06 * noise, blurred, images[:, :, ::-1], np.roll(images, 2, 1),
        np.roll(images, -2, 2), 0.5 * images + 0.5 * images.mean(axis=-1, keepdims=True),
    ]  # fmt: skip
