"""Windows cut out of a fitted mask: a small trigger that a large search has found.

A mask that was fitted to the remainder (see `memory`) is spread over the picture and has room to
explain more than a trigger: in clean networks, too, it reaches a fair match, and carries some
pictures elsewhere. A small window of its pattern, at full weight, has no such room. Norms average
over places, so a network that was trained with a small pattern remembers what it looks like far
better than where it was: the window that matches is often a neighbour of the trigger's place.
"""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from jaxtroj.evidence.images.remainder import Seen
from jaxtroj.norm_memory import Norms, matches
from jaxtroj.triggers.mask import FreeMask, stamp
from jaxtroj.triggers.window import Window

_REFERENCE = 32  # pixels of a side that sizes are given for
_SIZES = ((3, 2), (6, 3))  # sides of windows, and steps from one to the next


def cut(norms: Norms, known: Seen, fitted: FreeMask, pictures: int, kept: int) -> list[Window]:
    """The windows of a pattern that explain the remainder best, the best one first.

    Args:
      norms: the network's.
      known: the examples that the mask was fitted to.
      fitted: the mask; its weights count no more.
      pictures: examples that each window is tried on.
      kept: windows that are returned.
    """
    images, rows = known.images[:pictures], known.rows[:pictures]
    pattern = np.asarray(fitted.pattern, np.float32)
    masks = np.stack([one for size in _SIZES for one in _masks(images.shape[1:3], *size)])
    means = _means(norms, images, masks, pattern)
    centres = np.broadcast_to(rows.mean(axis=0), means.shape)
    found = np.asarray(matches(known.memory, jnp.asarray(centres), jnp.asarray(means)))
    best = np.argsort(-found, kind="stable")[:kept]
    return [Window(jnp.asarray(masks[place]), jnp.asarray(pattern)) for place in best]


def _masks(shape: Sequence[int], side: int, stride: int) -> Iterator[np.ndarray]:
    """Masks `[h, w, 1]` of all windows of a size; smaller pictures are covered."""
    unit = max(1, round(min(shape) / _REFERENCE))
    side, stride = min(side * unit, *shape), stride * unit
    for row in range(0, shape[0] - side + 1, stride):
        for column in range(0, shape[1] - side + 1, stride):
            mask = np.zeros((*shape, 1), np.float32)
            mask[row : row + side, column : column + side] = 1
            yield mask


def _means(norms: Norms, images, masks: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    """Mean moments `[masks, dims]` of the images with each window, so many masks at a time."""
    some = max(1, norms.batch // len(images))
    parts = []
    for start in range(0, len(masks), some):
        window = FreeMask(jnp.asarray(masks[start : start + some, None]), jnp.asarray(pattern))
        shown = np.asarray(stamp(jnp.asarray(images)[None], window))
        rows = norms.seen(shown.reshape(-1, *images.shape[1:]))[1]
        parts.append(rows.reshape(*shown.shape[:2], -1).mean(axis=1))
    return np.concatenate(parts)
