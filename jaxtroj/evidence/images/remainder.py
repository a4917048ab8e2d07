"""Some clean examples as a network's norms see them, and what training had that these lack."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.evidence.images.harmless import harmless_changes
from jaxtroj.network import usual_count
from jaxtroj.norm_memory import Memory, Norms, matches, memory_of

SOME = 48
"""Examples that harmless changes are measured on."""


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


def harmless_directions(
    norms: Norms, images: np.ndarray, key: jax.Array, most: int = SOME
) -> list[np.ndarray]:
    """Mean change `[dims]` of the moments of some pictures by each harmless change.

    Args:
      norms: the network's.
      images: clean ones; the first few are changed.
      key: of what the changes draw.
      most: pictures that are changed; no more than are a fair amount of work.
    """
    some = images[: min(most, usual_count(images))]
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    rows = norms.seen(np.concatenate([some, *harmless_changes(some, draw)]))[1]
    found = rows.reshape(-1, len(some), rows.shape[1]).mean(axis=1)
    return list(found[1:] - found[0])


def seen(norms: Norms, images: np.ndarray, harmless: Sequence[np.ndarray]) -> Seen:
    """What the norms see of some examples.

    Args:
      norms: the network's.
      images: clean ones.
      harmless: see `harmless_directions`; to be sure of an answer is harmless, too.
    """
    logits, rows = norms.seen(images)
    apart = [*harmless, *_sureness(logits, rows)]
    return Seen(images, logits, rows, memory_of(rows, norms.sizes(images), apart))


def _sureness(logits: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """How moments of examples that the network is sure of differ from those of the others."""
    order = np.sort(logits, axis=1)
    sure = order[:, -1] - order[:, -2] >= np.median(order[:, -1] - order[:, -2])
    return [rows[sure].mean(axis=0) - rows[~sure].mean(axis=0)] if 0 < sure.mean() < 1 else []
