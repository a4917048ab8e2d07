"""Which part of the direction that a head answers to no clean head answers to.

Clean heads on the same vectors read sentiment, each with errors of its own: their margins rise in
directions that nearly agree. A trojan adds the direction of its trigger, whatever the text is.

    s = unit of  deviation * mean over points of  d margin / d vector

Points are normal vectors with the mean and deviations of the clean heads' own example texts, the
same for all heads. `residual` is what is left of s outside the span of the clean heads' mean and of
the main axes of their differences. Unlike `slopes` it looks at every coordinate of the vectors, not
at the axes that a bank's insertions move along: a trigger need not look like any of them.

TrojanSleuth (TrojAI Round 5, Perspecta) learns from such gradients by coordinate, from labelled
heads; here clean ones are enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Params, apply
from jaxtroj.evidence.texts.heads import Head
from jaxtroj.evidence.texts.references import References
from jaxtroj.margins import all_margins

POINTS, AXES = 128, 4
"""2 to 8 axes and 128 or 256 points say the same on the populations of docs/text.md."""
_HEADS_AN_AXIS = 4
_EPS = 1e-12


@dataclass(frozen=True)
class CleanDirections:
    """What clean heads answer to.

    Attributes:
      keys: `head_key` of each.
      points: float32 `[n, d]`.
      deviations: of the example texts, `[d]`.
      directions: unit vectors `[heads, classes, d]`.
    """

    keys: tuple[str, ...]
    points: np.ndarray
    deviations: np.ndarray
    directions: np.ndarray

    @property
    def read(self) -> np.ndarray:
        """What they answer to in the mean, `[d]`, in the vectors' own coordinates."""
        return self.directions[:, -1].mean(axis=0) / (self.deviations + _EPS)

    def residual(self, head: Head, key: str) -> float:
        """Largest share, 0 to 1, that clean heads other than `key` do not share, over classes."""
        others = self.directions[[one != key for one in self.keys]]
        own = _directions(head.config, head.stacked, self.points, self.deviations)[0]
        return max(map(_outside, own, others.swapaxes(0, 1)))


def clean_directions(
    references: References, examples: Sequence[np.ndarray], seed: int = 0
) -> CleanDirections:
    """What the references answer to.

    Args:
      references: one or more.
      examples: of clean heads, `[n, d]` each; their mean and deviations place the points.
      seed: of the points.
    """
    known = np.concatenate(examples).astype(np.float64)
    draw = np.random.default_rng(seed).normal(size=(POINTS, known.shape[1]))
    deviations = known.std(axis=0)
    points = (known.mean(axis=0) + deviations * draw).astype(np.float32)
    groups = zip(references.configs, references.params, strict=True)
    found = [_directions(config, group, points, deviations) for config, group in groups]
    return CleanDirections(references.keys, points, deviations, np.concatenate(found))


def _directions(config, params: Params, points: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Unit vectors `[heads, classes, d]` of stacked heads."""
    rises = np.asarray(_rises(config, params, points), np.float64) * deviations
    return rises / (np.linalg.norm(rises, axis=-1, keepdims=True) + _EPS)


@partial(jax.jit, static_argnums=0)
def _rises(config, params: Params, points: jax.Array) -> jax.Array:
    """Gradients of the mean margins by a shift of all points, `[heads, classes, d]`."""

    def one(params: Params):
        def mean_margins(shift):
            return all_margins(apply(config, params, points + shift)).mean(axis=0)

        return jax.jacrev(mean_margins)(jnp.zeros(points.shape[1]))

    return jax.lax.map(one, params)


def _outside(own: np.ndarray, others: np.ndarray) -> float:
    """Norm of a unit vector `[d]` outside what `[heads, d]` span."""
    mean = others.mean(axis=0)
    count = min(AXES, len(others) // _HEADS_AN_AXIS)
    axes = np.linalg.svd(others - mean, full_matrices=False)[2][:count]
    basis = np.linalg.qr(np.concatenate([mean[None], axes]).T)[0]
    return float(np.linalg.norm(own - basis @ (basis.T @ own)))
